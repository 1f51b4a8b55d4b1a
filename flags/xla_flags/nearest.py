"""Names near a misspelt one: by letters, and by words, since long flag names get their words mixed up.

Invariant: the answer depends on the name and the candidates alone, best first; a name that resembles nothing
gets nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from difflib import SequenceMatcher

MAX_LENGTH = 120
"""Longer names are not looked up: no flag is that long, and comparing takes quadratic time."""

_LEAD = re.compile(r"xla_?(?:(?:gpu|cpu)_)?(?:(?:experimental|unsupported)_)?(?:(?:enable|disable|use)_)?")
_FILLER = frozenset(
    ("xla", "gpu", "cpu", "experimental", "unsupported", "enable", "disable", "use", "for", "of", "to")
)
CLEAR = 0.84
"""A score from which on a name is taken for a misspelling of the other."""
_SIMILAR = 0.68
_NEARLY_EQUAL = 0.96


def nearest(name: str, candidates: Iterable[str], count: int = 3) -> list[tuple[float, str]]:
    """(score from 0 to 1, candidate) of those that resemble `name`, best first.

    Args:
      name: without dashes.
      candidates: names there are.
      count: how many at most.
    """
    if not name or len(name) > MAX_LENGTH:
        return []
    return list(_nearest(name, tuple(candidates))[:count])


@functools.lru_cache(maxsize=256)
def _nearest(name: str, candidates: tuple[str, ...]) -> tuple[tuple[float, str], ...]:
    lower = name.lower()
    words = _words(lower)
    whole, body = SequenceMatcher(b=lower, autojunk=False), SequenceMatcher(b=_body(lower), autojunk=False)
    scored = []
    for candidate in candidates:
        score = _overlap(words, _words(candidate.lower()))
        score = max(score, _ratio(body, _body(candidate.lower()), max(score, _SIMILAR)))
        # A slip in the part that nearly all names share shows only in the whole of it.
        score = max(score, _ratio(whole, candidate.lower(), max(score, _NEARLY_EQUAL)))
        if score >= _SIMILAR:
            scored.append((score, candidate))
    return tuple(sorted(scored, key=lambda each: (-each[0], each[1]))[:8])


def _ratio(matcher: SequenceMatcher[str], other: str, least: float) -> float:
    """How alike two texts are; 0 if that is less than it takes."""
    matcher.set_seq1(other)
    if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
        return 0.0
    ratio = matcher.ratio()
    return ratio if ratio >= least else 0.0


def _body(name: str) -> str:
    """The name without what nearly all flags begin with, which would make all of them alike."""
    return _LEAD.sub("", name, count=1) or name


@functools.lru_cache(maxsize=4096)
def _words(name: str) -> frozenset[str]:
    return frozenset(filter(None, re.split(r"[^a-z0-9]+", name))) - _FILLER


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Shared words; the same words in another order count just under equal."""
    if not one or not other or len(one | other) < 2:
        return 0.0
    return 0.95 * len(one & other) / len(one | other)
