"""One configuration of a GPU benchmark, in a process of its own that steps when it is told to.

Compiles the workloads it is given, says "ready", then reads lines "<workload> <seconds>" and answers each
with JSON: steps per second, how the loop was run, and a checksum after as many steps as everybody has made.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import workloads

import jax_cmdbuf

CHUNK = 50
CHECKED = 20


def native(workload: workloads.Workload, wrap: Callable[..., Any]) -> tuple[Callable[[int], Any], str]:
    step = wrap(workload.step, donate_argnums=(0,) if workload.donate else ())
    kept: dict[str, Any] = {"state": workload.state(), "out": None, "turn": 0}
    batches = workload.batches

    def run(count: int) -> Any:
        state, out, turn = kept["state"], kept["out"], kept["turn"]
        for _ in range(count):
            state, out = step(state, workload.fixed, batches[turn % len(batches)])
            turn += 1
        kept.update(state=state, out=out, turn=turn)
        return jax.block_until_ready((state, out))

    run(8)
    return run, "native"


def session(workload: workloads.Workload) -> tuple[Callable[[int], Any], str]:
    batches = workload.batches
    captured = jax_cmdbuf.capture(workload.step, workload.state(), workload.fixed, batches[0])
    turn = 0

    def run(count: int) -> Any:
        nonlocal turn
        if len(batches) == 1:
            for _ in range(count):
                captured.run()
        else:
            for _ in range(count):
                captured.run(batch=batches[turn % len(batches)])
                turn += 1
        captured.synchronize()
        return captured

    run(8)
    return run, captured.runtime if captured.reason is None else f"{captured.runtime}: {captured.reason}"


def floor(workload: workloads.Workload) -> tuple[Callable[[int], Any], str]:
    """Launches of the recorded program and nothing else: what no loop can beat."""
    captured = jax_cmdbuf.capture(
        workload.step, workload.state(), workload.fixed, workload.batches[0], runtime="cuda_graph"
    )
    engine = captured._engine
    program, stream = engine._program, engine._stream

    def run(count: int) -> Any:
        for _ in range(count):
            program.launch()
        stream.synchronize()
        return None

    return run, "bare launches"


def checksum(result: Any) -> float | None:
    """A number that tells whether two configurations computed the same; None: not to be compared."""
    if result is None:
        return None
    tree = (result.state(), result.outputs()) if isinstance(result, jax_cmdbuf.CaptureSession) else result
    return float(sum(np.asarray(leaf, np.float64).sum() for leaf in jax.tree.leaves(tree)))


def make(configuration: str, workload: workloads.Workload) -> tuple[Callable[[int], Any], str]:
    if configuration == "session":
        return session(workload)
    if configuration == "floor":
        return floor(workload)
    if configuration.startswith("cuda_graph:"):
        mode = configuration.partition(":")[2]
        return native(
            workload, lambda f, **o: jax_cmdbuf.command_buffer(f, runtime="cuda_graph", update_mode=mode, **o)
        )
    return native(workload, jax.jit)


def main(configuration: str, names: list[str]) -> None:
    found = workloads.workloads()
    running: dict[str, tuple[Callable[[int], Any], str]] = {}
    sums: dict[str, float | None] = {}
    for name in names:
        try:
            running[name] = make(configuration, found[name])
            sums[name] = checksum(running[name][0](CHECKED))
        except jax_cmdbuf.CmdbufError as error:
            sums[name] = None
            running[name] = (lambda count: None), str(error)
    print("ready", flush=True)
    for line in sys.stdin:
        name, seconds = line.split()
        run, how = running[name]
        steps, begin = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < float(seconds):
            run(CHUNK)
            steps += CHUNK
        answer = {"steps_per_s": steps / elapsed, "how": how, "checksum": sums[name]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].split(","))
