"""Which flags take part in the key of JAX's compilation cache, so that setting them compiles anew.

From jax/_src/cache_key.py: the words of `XLA_FLAGS` are hashed as they are written, except those that begin
with a name it lists, and so are all fields of DebugOptions that it does not clear. Invariant: a flag stays
out of the key only if its text and its field both do.
"""

from __future__ import annotations

from xla_flags.schema import version_key

_LEFT_OUT = frozenset(
    {
        "xla_dump_compress_protos",
        "xla_dump_disable_metadata",
        "xla_dump_fusion_visualization",
        "xla_dump_hlo_as_dot",
        "xla_dump_hlo_as_html",
        "xla_dump_hlo_as_long_text",
        "xla_dump_hlo_as_proto",
        "xla_dump_hlo_as_text",
        "xla_dump_hlo_as_url",
        "xla_dump_hlo_module_re",
        "xla_dump_hlo_pass_re",
        "xla_dump_hlo_pipeline_re",
        "xla_dump_hlo_snapshots",
        "xla_dump_max_hlo_modules",
        "xla_dump_module_metadata",
        "xla_dump_to",
        "xla_force_host_platform_device_count",
        "xla_gpu_cuda_data_dir",
        "xla_gpu_experimental_autotune_cache_mode",
    }
)
# Flag -> the first recorded release of jax that leaves it out.
_LEFT_OUT_SINCE = {"xla_gpu_per_fusion_autotune_cache_dir": "0.11.2"}


def in_cache_key(name: str, version: str) -> bool:
    """Whether setting a flag, even to its default, changes the keys under which JAX caches compiled programs.

    Args:
      name: of the flag, without dashes.
      version: of jax, which is jaxlib's.
    """
    since = _LEFT_OUT_SINCE.get(name)
    if since is not None:
        return version_key(version) < version_key(since)
    return name not in _LEFT_OUT
