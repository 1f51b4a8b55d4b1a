"""The `jax-cmdbuf` command."""
