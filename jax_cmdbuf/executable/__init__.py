"""What XLA compiled, as pure data: buffer allocations, thunks and command buffers; no device, no JAX runtime."""
