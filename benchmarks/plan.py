"""What a plan costs: decoding and planning a program of 1,000 thunks, and importing the package.

    python benchmarks/plan.py [executable]

Without an executable it compiles one of about 1,000 thunks for an H200 that need not be there (a minute).
Printed: seconds of decoding and planning with descriptors cached (best of five), the peak memory of a fresh
process that does it, and what `import jax_cmdbuf` adds to `import jax`. Limits: 1 s, 200 MB, 100 ms; exit
status 1 if one is missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "flags")]

PROGRAM = """
import jax, jax.numpy as jnp
def chain(x):
    for i in range(N):
        x = jnp.flip(jnp.cumsum(x, axis=i % 2), axis=0)
    return x
def chain_args():
    return (jax.ShapeDtypeStruct((64, 64), jnp.float32),)
"""
LIMIT_S, LIMIT_MB, LIMIT_IMPORT_MS = 1.0, 200.0, 100.0


def compiled(directory: Path, thunks: int) -> bytes:
    from jax_cmdbuf.executable.compile import CompileRequest, FunctionSource, compile_for_target
    from jax_cmdbuf.executable.targets import load_target

    source = directory / "chain.py"
    source.write_text(PROGRAM.replace("N", str(thunks), 1))
    request = CompileRequest(FunctionSource(str(source), "chain"), load_target("h200"), xla_flags="")
    return compile_for_target(request).serialized


ONCE = """
import resource, sys, time
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.api.plan import plan_executable
from jax_cmdbuf.report.json_plan import plan_as_json
Executable.from_bytes(open(sys.argv[1], "rb").read())
decoded, planned, written = [], [], []
for _ in range(5):
    started = time.perf_counter()
    executable = Executable.from_bytes(open(sys.argv[1], "rb").read())
    decoded.append(time.perf_counter() - started)
    plan = plan_executable(executable)
    planned.append(time.perf_counter() - started)
    plan_as_json(plan)
    written.append(time.perf_counter() - started - planned[-1])
thunks = sum(1 for top in plan.executable.thunks for _ in top.walk())
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(thunks, min(decoded), min(planned), min(written), memory)
"""


def fresh(code: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:2]), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def import_ms(rounds: int = 7) -> float:
    """Milliseconds that `import jax_cmdbuf` takes after `import jax`, best of several processes."""
    code = "import jax, time; t = time.perf_counter(); import jax_cmdbuf; print(time.perf_counter() - t)"
    return 1000 * min(float(fresh(code)) for _ in range(rounds))


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        if len(sys.argv) > 1:
            path = Path(sys.argv[1])
        else:
            path = Path(name, "executable.bin")
            started = time.perf_counter()
            path.write_bytes(compiled(Path(name), 1000))
            print(f"compiled in {time.perf_counter() - started:.0f} s, {path.stat().st_size:,} bytes")
        thunks, decoded, seconds, written, megabytes = map(float, fresh(ONCE, str(path)).split())
    milliseconds = import_ms()
    print(f"thunks                       {thunks:8.0f}")
    print(f"decoding alone               {decoded:8.3f} s")
    print(f"decoding and planning        {seconds:8.3f} s   (limit {LIMIT_S:g})")
    print(f"writing it as JSON           {written:8.3f} s")
    print(f"peak memory of the process   {megabytes:8.0f} MB  (limit {LIMIT_MB:g})")
    print(f"import after import jax      {milliseconds:8.1f} ms  (limit {LIMIT_IMPORT_MS:g})")
    return int(seconds > LIMIT_S or megabytes > LIMIT_MB or milliseconds > LIMIT_IMPORT_MS)


if __name__ == "__main__":
    sys.exit(main())
