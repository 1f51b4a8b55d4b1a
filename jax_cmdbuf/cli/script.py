"""Runs a script or module in this process, as ``python`` would, and tells how it ended.

Invariant: whatever the script raises is told and not raised; afterwards ``sys.argv``, ``sys.path`` and
``__main__`` are what they were.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import pkgutil
import sys
import threading
import time
import zipfile
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from jax_cmdbuf.errors import InputError

__all__ = ["Script", "ScriptEnd", "run_script"]

STATUS_FAILED = 1
STATUS_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Script:
    """What to run.

    Attributes:
      name: a file, a folder or archive with a ``__main__.py``, or a module.
      is_module: whether it is a module (``python -m``).
      arguments: its command line.
    """

    name: str
    is_module: bool
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """The command line, as after ``python``."""
        return (*(("-m",) if self.is_module else ()), self.name, *self.arguments)

    def check(self) -> None:
        """Raises InputError where there is no such script or module."""
        if not self.is_module:
            if not Path(self.name).exists():
                raise InputError(f"there is no script {self.name}")
            return
        sys.path.insert(0, str(Path.cwd()))
        try:
            _find_module(self.name)
        except ImportError as error:
            raise InputError(f"cannot run the module {self.name}: {error}") from error
        finally:
            sys.path.remove(str(Path.cwd()))


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """How it ended.

    Attributes:
      outcome: "finished", "exited", "failed" or "interrupted".
      detail: the exit status, or the exception's type and text, in one line.
      status: the exit status that ``python`` would end with; 130 after Ctrl-C.
      began_us, took_us: when it began (microseconds since 1970), and how long it ran.
    """

    outcome: str
    detail: str
    status: int
    began_us: float
    took_us: float


def run_script(script: Script) -> ScriptEnd:
    """Runs it to its end, threads included; prints what ``python`` would print about an exception.

    Raises:
      InputError: there is no such script or module.
    """
    script.check()
    began, clock = time.time_ns() / 1000, time.perf_counter_ns()
    caught = _Caught()
    with _Process(script):
        with caught:
            _run(script)
        with caught:
            _join_threads()
        outcome, detail, status = _judge(caught.error)
    return ScriptEnd(outcome, detail, status, began, (time.perf_counter_ns() - clock) / 1000)


def _run(script: Script) -> None:
    # As Python makes them absolute: neither "." nor a symbolic link goes.
    path = os.path.join(os.getcwd(), script.name)  # noqa: PTH109, PTH118
    if script.is_module:
        spec, loader = _find_module(script.name)
        if spec.origin is not None:
            sys.argv[0] = spec.origin
    elif Path(path).is_file() and not zipfile.is_zipfile(path):
        code = compile(Path(path).read_bytes(), path, "exec")
        exec(code, _new_main(__file__=path, __package__=None))
        return
    else:
        spec, loader = _find_in_archive(path)
        sys.path[0] = path
    main = _new_main(__file__=spec.origin, __spec__=spec, __loader__=loader, __package__=spec.parent)
    if (module := loader.get_code(spec.name)) is None:
        raise ImportError(f"there is no code of {spec.name}")
    exec(module, main)


def _find_in_archive(path: str) -> tuple[ModuleSpec, Any]:
    importer = pkgutil.get_importer(path)
    spec = importer.find_spec("__main__") if importer is not None else None
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ImportError(f"there is no __main__ in {path}")
    return spec, spec.loader


def _find_module(name: str) -> tuple[ModuleSpec, Any]:
    """A module's spec and loader, of a package its ``__main__``; raises ImportError where it has none."""
    try:
        # Imports the packages it is in, as running it does.
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except ValueError as error:
        raise ImportError(str(error)) from error
    if spec is None:
        raise ImportError(f"there is no {name}")
    if not hasattr(spec.loader, "get_code"):
        raise ImportError(f"there is no code of {name}")
    return spec, spec.loader


def _new_main(**attributes: object) -> dict[str, object]:
    """A new module ``__main__``; its namespace. It stays until the script has ended, threads and all."""
    main = ModuleType("__main__")
    main.__dict__.update(attributes, __builtins__=builtins)
    sys.modules["__main__"] = main
    return main.__dict__


class _Process:
    """``sys`` as the script expects it."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def __enter__(self) -> None:
        script = self._script
        self._before = sys.argv, list(sys.path), sys.modules.get("__main__")
        sys.argv = [script.name, *script.arguments]
        path = Path(script.name)
        sys.path[:1] = [str(Path.cwd() if script.is_module else path.resolve().parent)]

    def __exit__(self, *error: object) -> None:
        sys.argv, sys.path[:], main = self._before
        if main is not None:
            sys.modules["__main__"] = main


@dataclass(slots=True)
class _Caught:
    """Takes the first exception that gets so far."""

    error: BaseException | None = field(default=None)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = self.error or error
        return True


def _join_threads() -> None:
    """``python`` waits for them before it ends, and they may be what is observed."""
    ours = (threading.current_thread(), threading.main_thread())
    for thread in threading.enumerate():
        if thread not in ours and not thread.daemon:
            thread.join()


def _judge(error: BaseException | None) -> tuple[str, str, int]:
    """(outcome, detail, status); prints what Python prints."""
    if error is None:
        return "finished", "", 0
    if isinstance(error, SystemExit):
        status = _status_of(error)
        return ("exited", f"exit status {status}", status) if status else ("finished", "", 0)
    error.__traceback__ = _of_script(error.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)
    detail = f"{type(error).__name__}: {error}".removesuffix(": ").splitlines()[0]
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "KeyboardInterrupt", STATUS_INTERRUPTED
    return "failed", detail, STATUS_FAILED


def _status_of(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return STATUS_FAILED


def _of_script(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that are between Python and the script."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
