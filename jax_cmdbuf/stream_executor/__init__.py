"""What a device must offer, the virtual-memory allocator on top of it, and the simulated device.

``interface`` names the protocols, ``memory`` the handles that both backends share, ``vmm_allocator`` the
allocator that knows no backend. Invariant: nothing here knows JAX, and only ``cuda*`` modules know CUDA.
"""
