"""Compiles the recorded loops for an H200 without one, and keeps the executables as test data.

    PYTHONPATH=.:flags python tools/compile_scenarios.py [NAME ...]

Writes ``tests/data/va_remap/<loop>/deviceless.bin.gz`` for each, and prints whether a loop that is simulated
with it predicts what was recorded.
"""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
# As the recordings were made, `real_*` with XLA's own minimum.
SMALLEST_GRAPH = "--xla_gpu_graph_min_graph_size=1"


def main(chosen: list[str]) -> None:
    from jax_cmdbuf.api import gpu_plan
    from tests.groundtruth.scenario_runs import RECORDINGS, names, predicted, recorded

    kept: list[bytes] = []
    compile_for_target = gpu_plan.compile_for_target

    def keep(request: gpu_plan.CompileRequest) -> object:
        result = compile_for_target(request)
        kept.append(result.serialized)
        return result

    gpu_plan.compile_for_target = keep
    for name in chosen or names():
        os.environ["XLA_FLAGS"] = "" if name.startswith("real_") else SMALLEST_GRAPH
        kept.clear()
        agrees = predicted(name, None) == recorded(name)
        if kept:
            packed = gzip.compress(kept[0], mtime=0)
            (RECORDINGS / name / "deviceless.bin.gz").write_bytes(packed)
        print(f"{name:32}{'agrees' if agrees else 'differs' if kept else 'not compiled'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
