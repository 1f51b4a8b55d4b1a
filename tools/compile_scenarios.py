"""Compiles the recorded loops for an H200 without one, and keeps the executables as test data.

    PYTHONPATH=.:flags python tools/compile_scenarios.py [NAME ...]

Writes ``tests/data/va_remap/<loop>/deviceless.bin.gz`` for each, and prints whether a loop that is simulated
with it predicts what was recorded. What it writes names no folder of the machine that it was written on.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
# As the recordings were made, `real_*` with XLA's own minimum.
SMALLEST_GRAPH = "--xla_gpu_graph_min_graph_size=1"


def main(chosen: list[str], folder: Path) -> None:
    import jax

    from jax_cmdbuf.api import gpu_plan
    from jax_cmdbuf.executable.container import read_container
    from jax_cmdbuf.executable.toolchain import find_toolchain
    from tests.groundtruth.scenario_runs import RECORDINGS, names, predicted, recorded

    kept: list[bytes] = []
    compile_for_target = gpu_plan.compile_for_target

    def keep(request: gpu_plan.CompileRequest) -> object:
        result = compile_for_target(request)
        kept.append(result.serialized)
        return result

    gpu_plan.compile_for_target = keep
    # Executables keep the names of source files, and where JAX and XLA look for CUDA.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    cuda = folder / "cuda"
    cuda.symlink_to(find_toolchain(os.environ).link_into(folder / "links"))
    os.environ["CUDA_ROOT"] = str(cuda)
    for name in chosen or names():
        smallest = "" if name.startswith("real_") else SMALLEST_GRAPH
        os.environ["XLA_FLAGS"] = f"{smallest} --xla_gpu_cuda_data_dir={cuda}".strip()
        kept.clear()
        agrees = predicted(name, None) == recorded(name)
        if kept:
            container = read_container(kept[0])
            assert str(ROOT) not in f"{container.outer} {container.executable}", "it names this checkout"
            packed = gzip.compress(kept[0], mtime=0)
            (RECORDINGS / name / "deviceless.bin.gz").write_bytes(packed)
        print(f"{name:32}{'agrees' if agrees else 'differs' if kept else 'not compiled'}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(sys.argv[1:], Path(made))
