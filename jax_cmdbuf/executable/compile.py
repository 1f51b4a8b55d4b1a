"""A JAX function or a module's text -> the serialized executable for a named GPU, which need not be there.

The compilation runs in a process of its own (``compile_worker``), with its own environment. Invariant:
nothing in the caller's process changes: no JAX backend, no ``XLA_FLAGS``, no working directory; and
whatever XLA does to its own process comes back as an exception of ``errors.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import jax_cmdbuf.errors as errors
from jax_cmdbuf.errors import CmdbufError, CompileError, InputError
from jax_cmdbuf.executable.compile_flags import check_flags
from jax_cmdbuf.executable.compile_log import key_line, remarks
from jax_cmdbuf.executable.targets import Target
from jax_cmdbuf.executable.toolchain import Toolchain, find_toolchain

__all__ = ["CompileRequest", "CompileResult", "FunctionSource", "ModuleSource", "compile_for_target"]

DEFAULT_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function of a Python file or module.

    Attributes:
      module: path of a ``.py`` file, or a dotted module name.
      function: its name there; dots reach into classes and namespaces.
      shapes: XLA shapes of the positional arguments; empty: ask ``<function>_args`` beside it.
    """

    module: str
    function: str
    shapes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """HLO text (it begins with ``HloModule``), or StableHLO in MLIR text.

    Attributes:
      text: the text.
      name: how errors name it, for example the file's name.
    """

    text: str = field(repr=False)
    name: str


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """What to compile, for what.

    Attributes:
      source: the program.
      target: the GPU.
      devices: how many of them; None: what a module's text says, 1 for a function.
      shard: names of the arguments whose leading axis is split over the devices; None: decided by the
        worker's rule (``compile_function``); empty: everything replicated.
      xla_flags: the worker's ``XLA_FLAGS``; None: the caller's.
      timeout_s: seconds after which the worker is killed.
    """

    source: FunctionSource | ModuleSource
    target: Target
    devices: int | None = None
    shard: tuple[str, ...] | None = None
    xla_flags: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class CompileResult:
    """What came back.

    Attributes:
      serialized: the serialized executable.
      arguments: path of each entry parameter, in order ("params['w']"); empty where the source names none.
      results: path of each result leaf ("out[0]"); empty where unknown.
      thunk_dumps: XLA's own dumps, by the end of their file name ("thunk_sequence_after_thunk_passes"): text.
      notes: what the worker decided or assumed, one sentence each.
      versions: distribution -> version, of what compiled.
    """

    serialized: bytes = field(repr=False)
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    thunk_dumps: Mapping[str, str] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


def compile_for_target(request: CompileRequest, environ: Mapping[str, str] | None = None) -> CompileResult:
    """Compiles in a worker process.

    Args:
      request: the program and the GPU.
      environ: the caller's environment; None: ``os.environ``.

    Raises:
      InputError: the program, its arguments or its flags cannot be used.
      MissingDependencyError: a package is missing.
      CompileError: XLA refused, died, or took longer than ``timeout_s``.
    """
    environ = dict(os.environ if environ is None else environ)
    flags = environ.get("XLA_FLAGS", "") if request.xla_flags is None else request.xla_flags
    checked = check_flags(flags)
    toolchain = find_toolchain(environ, checked.cuda_data_dir)
    with tempfile.TemporaryDirectory(prefix="jax-cmdbuf-") as name:
        directory = Path(name)
        (directory / "request.json").write_text(
            json.dumps(_as_json(request, toolchain, directory)), encoding="utf-8"
        )
        status = _run_worker(directory, _worker_environ(environ, flags), request.timeout_s)
        return _read_result(directory, status, toolchain, checked.notes)


def _as_json(request: CompileRequest, toolchain: Toolchain, directory: Path) -> dict[str, object]:
    source = request.source
    program: dict[str, object]
    if isinstance(source, FunctionSource):
        program = {"module": source.module, "function": source.function, "shapes": list(source.shapes)}
    else:
        program = {"text": source.text, "name": source.name}
    return {
        "program": program,
        "target": request.target.text,
        "devices": request.devices,
        "shard": None if request.shard is None else list(request.shard),
        "cuda_data_dir": str(toolchain.link_into(directory / "cuda")),
    }


def _worker_environ(environ: Mapping[str, str], flags: str) -> dict[str, str]:
    """The worker's environment: the caller's, on the CPU platform, with both of our packages importable."""
    packages = Path(errors.__file__).parent.parent
    import xla_flags

    flags_packages = Path(str(xla_flags.__file__)).parent.parent
    path = [str(packages), str(flags_packages), *filter(None, [environ.get("PYTHONPATH")])]
    worker = {
        **environ,
        "PYTHONPATH": os.pathsep.join(path),
        # Not cosmetic: without it the plugin's failed device check leaves the topology API unregistered.
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags,
        # A cached executable would not have gone through this compilation's flags and dump.
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        # A device that is there is none of this compilation's business.
        "CUDA_VISIBLE_DEVICES": "",
    }
    worker.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    return worker


def _run_worker(directory: Path, environ: Mapping[str, str], timeout_s: float) -> int:
    command = [sys.executable, "-m", "jax_cmdbuf.executable.compile_worker", str(directory)]
    with (directory / "log").open("wb") as log:
        try:
            worker = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            raise CompileError(f"cannot start the compiling process: {error.strerror or error}") from error
        try:
            return worker.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise CompileError(f"compilation took longer than {timeout_s:g} s and was ended") from None
        finally:
            # ptxas children live in the worker's session; they must not outlive it.
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()


def _read_result(directory: Path, status: int, toolchain: Toolchain, notes: tuple[str, ...]) -> CompileResult:
    result_file = directory / "result.json"
    log = (directory / "log").read_text(encoding="utf-8", errors="replace")
    if status != 0 or not result_file.exists():
        raise _death(status, log)
    result = json.loads(result_file.read_text(encoding="utf-8"))
    if "error" in result:
        kind = getattr(errors, result["error"], CompileError)
        raise kind(result["message"]) if issubclass(kind, CmdbufError) else CompileError(result["message"])
    return CompileResult(
        serialized=(directory / "executable.bin").read_bytes(),
        arguments=tuple(result["arguments"]),
        results=tuple(result["results"]),
        thunk_dumps=result["thunk_dumps"],
        notes=(*notes, *result["notes"], *remarks(log)),
        versions={**result["versions"], toolchain.plugin: toolchain.plugin_version},
    )


def _death(status: int, log: str) -> CmdbufError:
    """The exception for a worker that ended without an answer."""
    line = key_line(log)
    if "in XLA_FLAGS" in line:
        return InputError(f"XLA refuses the flags: {line}")
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return CompileError(f"XLA's process ended with {how} while compiling" + (f": {line}" if line else ""))
