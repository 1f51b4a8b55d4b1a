"""The process that compiles: ``python -m jax_cmdbuf.executable.compile_worker DIRECTORY``.

Reads ``request.json`` in DIRECTORY, writes ``executable.bin`` and ``result.json`` there. Invariant:
whatever happens in Python ends in a ``result.json``; a process that leaves none was killed, by XLA or from
outside. The parent (``compile.py``) prepares the environment; this module must not be imported into a
process that uses JAX for something else.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax_cmdbuf.errors import CmdbufError, CompileError
from jax_cmdbuf.executable.compile_log import explain

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Compiles what ``request.json`` in directory ``argv[0]`` asks for; 0 once it has written an answer."""
    (name,) = sys.argv[1:] if argv is None else argv
    directory = Path(name)
    request = json.loads((directory / "request.json").read_text(encoding="utf-8"))
    try:
        result = _compile(request, directory)
    except CmdbufError as error:
        result = {"error": type(error).__name__, "message": str(error)}
    except MemoryError:
        result = {"error": "CompileError", "message": "out of memory while compiling"}
    except Exception as error:  # the process boundary: anything else would be lost
        explained = explain(f"{type(error).__name__}: {error}")
        result = {"error": type(explained).__name__, "message": str(explained)}
    (directory / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return 0


def _compile(request: dict[str, Any], directory: Path) -> dict[str, Any]:
    # Imported here, not above: the tests check that importing this module does not import JAX.
    from jax_cmdbuf.executable.compile_devices import topology_devices

    dump = directory / "dump"
    options = {"xla_gpu_cuda_data_dir": request["cuda_data_dir"], "xla_dump_to": str(dump)}
    program = request["program"]
    if "text" in program:
        from jax_cmdbuf.executable.compile_module import compile_module

        compiled = compile_module(
            program["text"], program["name"], request["target"], request["devices"], options
        )
    else:
        from jax_cmdbuf.executable.compile_function import compile_function

        devices = topology_devices(request["target"], 1 if request["devices"] is None else request["devices"])
        compiled = compile_function(
            program["module"], program["function"], program["shapes"], devices, request["shard"], options
        )
    (directory / "executable.bin").write_bytes(compiled.serialized)
    return {
        "arguments": compiled.arguments,
        "results": compiled.results,
        "notes": compiled.notes,
        "thunk_dumps": _thunk_dumps(dump),
        "versions": {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")},
    }


def _thunk_dumps(dump: Path) -> dict[str, str]:
    """XLA's dumps of the thunk sequence, before and after its passes."""
    dumps: dict[str, str] = {}
    for file in sorted(dump.glob("*.thunk_sequence*.txt")):
        # A helper module, compiled along the way, would come earlier; the program itself is the last one.
        dumps[file.name.rsplit(".", 2)[-2]] = file.read_text(encoding="utf-8", errors="replace")
    if not dumps:
        raise CompileError("XLA wrote no thunk sequence: the program was not compiled for a GPU")
    return dumps


if __name__ == "__main__":
    sys.exit(main())
