"""The installed jaxlib as judge: its verdict on a value of XLA_FLAGS, in the form of the recordings.

Not a test. Invariant: nothing of the parser under test is used, only the descriptors of jaxlib's messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xla_flags.observe import OptionsReader
from xla_flags.probe import Probe


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: str
    message: str | None
    usage: str | None
    changed: dict[str, Any] | None
    log: list[str]


class Judge:
    """Asks a probe and reads its answers."""

    def __init__(self, probe: Probe, library: Path) -> None:
        self.probe = probe
        self.reader = OptionsReader(library)
        self.defaults = self.reader.read(probe.ask(None))

    def __call__(self, value: bytes | None, cwd: str | Path = ".") -> Verdict:
        answer = self.probe.ask(value, cwd)
        fuel = sorted(text for _, text in answer.log if text.startswith("Compiler fuel"))
        log = [f"{severity} {text}" for severity, text in answer.log if severity != "F" and text not in fuel]
        log += [f"E {text}" for text in fuel]
        if answer.options is not None:
            options = self.reader.read(answer)
            changed = {name: plain(value) for name, value in options.items() if value != self.defaults[name]}
            return Verdict("ok", None, None, changed, log)
        fatal = answer.fatal
        assert fatal is not None
        assert answer.status == 1
        if fatal.startswith("Check failed: tsl::Flags::Parse"):
            usage = fatal.split("\nusage: ", 1)[1].split("\nFlags:\n")[0]
            return Verdict("usage_error", "Flag parsing failed.", usage, None, log)
        return Verdict("fatal", fatal, None, None, log)


def plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
