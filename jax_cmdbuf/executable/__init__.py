"""What XLA compiled, as pure data: allocations, thunks, command buffers; no device, no JAX runtime."""
