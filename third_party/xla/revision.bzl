"""The one XLA whose rules this project follows. Pins only: no XLA source is copied here or fetched by any build."""

# The commit of openxla/xla whose gpu_executable_va_remap_allocator.cc holds all three update modes as mirrored here.
XLA_COMMIT = "3402c94ae07135098b3580a1d57faf26232242bc"

# The pull requests of openxla/xla that brought what is mirrored.
XLA_PULL_REQUESTS = {
    39393: "VA remapping for command buffer thunks",
    45597: "SKIP_PROFILED command buffer update mode",
    46342: "command buffers fall back to their thunks while SKIP_PROFILED profiles",
}

# The jax commits of the releases whose behaviour was recorded. Where these and XLA_COMMIT differ, they are right.
JAX_RELEASES = {
    "0.10.2": "990e6a0b84138346e6a38785412f36356e0e5dc3",
    "0.11.2": "32544801e26115ac1794926d027148abf3baf009",
    "0.12.0.1": "dc4af684446e65ee98eee8090e1ff6f8211473fb",
}
