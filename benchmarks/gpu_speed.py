"""Steps per second: XLA in each mode and allocator, our command buffers, sessions, and bare graph launches.

Every configuration is a process of its own, because allocator and flags belong to a process; all are started
together and step in turns, so that each round compares like with like. Medians of the rounds; ratios are to
the best of XLA. Values are compared by a checksum.

    PYTHONPATH=.:flags python benchmarks/gpu_speed.py [--seconds 0.3] [--rounds 3] [--json FILE] [--only A,B]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MODE = "--xla_gpu_command_buffer_update_mode="
VMM = {"XLA_PYTHON_CLIENT_ALLOCATOR": "vmm"}

# Name -> (what the child runs, variables).
CONFIGURATIONS: dict[str, tuple[str, dict[str, str]]] = {
    "XLA default": ("xla", {}),
    "XLA vmm": ("xla", VMM),
    "XLA SKIP_TEMP": ("xla", {"XLA_FLAGS": MODE + "SKIP_TEMP"}),
    "XLA SKIP_PROFILED": ("xla", {"XLA_FLAGS": MODE + "SKIP_PROFILED"}),
    "ours ALWAYS_UPDATE": ("cuda_graph:ALWAYS_UPDATE", VMM),
    "ours SKIP_TEMP": ("cuda_graph:SKIP_TEMP", VMM),
    "ours SKIP_PROFILED": ("cuda_graph:SKIP_PROFILED", VMM),
    "session": ("session", {}),
    "floor": ("floor", {}),
}
WORKLOADS = (
    "mlp_same",
    "mlp_rotate",
    "mlp_feedback",
    "mlp_donate",
    "train",
    "train_donate",
    "transformer",
    "decode",
)


class Child:
    """A process of one configuration."""

    def __init__(self, what: str, variables: dict[str, str], workloads: list[str]) -> None:
        flags = " ".join(filter(None, ["--xla_gpu_graph_min_graph_size=1", variables.get("XLA_FLAGS", "")]))
        environment = (
            os.environ
            | variables
            | {
                "XLA_FLAGS": flags,
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                "JAX_CMDBUF_FLAGS": "off",
                "TF_CPP_MIN_LOG_LEVEL": "2",
            }
        )
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "gpu" / "child.py"), what, ",".join(workloads)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> bool:
        return self._line() == "ready"

    def ask(self, workload: str, seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{workload} {seconds}\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._line())
        except (BrokenPipeError, json.JSONDecodeError):
            answer = {"steps_per_s": None, "how": "the process ended", "checksum": None}
        return answer

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(names: list[str], workloads: list[str], seconds: float, rounds: int) -> dict[str, dict[str, Any]]:
    children = {name: Child(*CONFIGURATIONS[name], workloads) for name in names}
    found: dict[str, dict[str, Any]] = {workload: {} for workload in workloads}
    try:
        alive = {name: child for name, child in children.items() if child.ready()}
        for workload in workloads:
            for _ in range(rounds):
                for name, child in alive.items():
                    answer = child.ask(workload, seconds)
                    entry = found[workload].setdefault(
                        name, {"steps_per_s": [], **answer, "first": answer["checksum"]}
                    )
                    if entry["steps_per_s"] is None or isinstance(entry["steps_per_s"], float):
                        entry["steps_per_s"] = []
                    entry["steps_per_s"].append(answer["steps_per_s"])
            show(workload, found[workload])
    finally:
        for child in children.values():
            child.close()
    return found


def median(entry: dict[str, Any]) -> float:
    numbers = [each for each in entry["steps_per_s"] if each is not None]
    return statistics.median(numbers) if numbers else math.nan


def best_of_xla(row: dict[str, Any]) -> float:
    return max((median(entry) for name, entry in row.items() if name.startswith("XLA")), default=math.nan)


def show(workload: str, row: dict[str, Any]) -> None:
    best = best_of_xla(row)
    print(f"\n{workload}")
    for name, entry in row.items():
        value = median(entry)
        how = "" if entry["how"] in ("native", "cuda_graph", "bare launches") else f"  ({entry['how'][:80]})"
        print(f"  {name:20} {value:10,.0f} steps/s  {value / best:5.2f} x the best of XLA{how}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.3, help="per measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", help="configurations, separated by commas")
    parser.add_argument("--workloads", help="workloads, separated by commas")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(CONFIGURATIONS)
    workloads = arguments.workloads.split(",") if arguments.workloads else list(WORKLOADS)
    found = measure(names, workloads, arguments.seconds, arguments.rounds)
    if "session" in names:
        ratios = [median(row["session"]) / best_of_xla(row) for row in found.values()]
        print(f"\nsession over the best of XLA, geometric mean: {statistics.geometric_mean(ratios):.2f}")
        if "floor" in names:
            print(
                "floor over session:",
                ", ".join(
                    f"{name} {median(row['floor']) / median(row['session']):.2f}"
                    for name, row in found.items()
                ),
            )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
