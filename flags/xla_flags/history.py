"""Which releases of jaxlib know which flag names: facts recorded by asking each of them.

Invariant: only releases in `data/history.json` are spoken of; between two of them nothing is claimed. The
file is made by tools/record_flag_history.py.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from xla_flags.schema import version_key


@dataclass(frozen=True, slots=True)
class FlagHistory:
    """The recorded releases that know a flag.

    Attributes:
      name: without dashes.
      since: the first of them.
      until: the last of them.
      from_start: whether `since` is the first release recorded, so that the flag may be older.
      current: whether `until` is the last release recorded.
      gone_in: the first recorded release after `until`; None if `current`.
    """

    name: str
    since: str
    until: str
    from_start: bool
    current: bool
    gone_in: str | None

    def known_in(self, version: str) -> bool:
        """Whether a release between `since` and `until` is meant."""
        return version_key(self.since) <= version_key(version) <= version_key(self.until)

    @property
    def span(self) -> str:
        """In words: `jaxlib 0.5.0 to 0.7.0`."""
        first = f"{self.since} (or earlier)" if self.from_start else self.since
        if self.current:
            return f"jaxlib {first} and later"
        return f"jaxlib {first} to {self.until}" if self.since != self.until else f"jaxlib {first}"


@functools.cache
def _recorded() -> tuple[tuple[str, ...], Mapping[str, tuple[int, int]]]:
    text = resources.files("xla_flags").joinpath("data", "history.json").read_text("utf-8")
    data = json.loads(text)
    return tuple(data["releases"]), {name: (first, last) for name, (first, last) in data["flags"].items()}


def recorded_releases() -> tuple[str, ...]:
    """The releases of jaxlib that were asked, oldest first."""
    return _recorded()[0]


def history_of(name: str) -> FlagHistory | None:
    """The history of a flag; None: no recorded release knows it."""
    releases, flags = _recorded()
    if name not in flags:
        return None
    first, last = flags[name]
    return FlagHistory(
        name=name,
        since=releases[first],
        until=releases[last],
        from_start=first == 0,
        current=last == len(releases) - 1,
        gone_in=releases[last + 1] if last + 1 < len(releases) else None,
    )


def recorded_names() -> tuple[str, ...]:
    """All flag names that any recorded release knows."""
    return tuple(_recorded()[1])
