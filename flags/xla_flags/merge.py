"""Flags from several places as one value of `XLA_FLAGS`, each remembering where it came from.

Invariant: `parse(Flags.merge(base, override).text)` has the verdict and the values of the text of `base`
followed by that of `override`; merging decides nothing that XLA would not.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import dataclass

from xla_flags.errors import ProcessWouldEndError
from xla_flags.literals import BLANK
from xla_flags.parser import ParseResult, parse
from xla_flags.schema import Catalog, FlagKind, FlagSpec
from xla_flags.spelling import canonical_value, flag_text, join, python_value_text, token_text

VARIABLE = "XLA_FLAGS"


@dataclass(frozen=True, slots=True)
class Setting:
    """One flag as somebody wrote it.

    Attributes:
      text: as XLA reads it, such as `--xla_gpu_autotune_level=2`: quotes gone.
      origin: who wrote it, in words for a person, such as `XLA_FLAGS` or `mylib`.
    """

    text: str
    origin: str

    @property
    def name(self) -> str:
        """The flag's name, without dashes."""
        return self.text.partition("=")[0].removeprefix("--")


@dataclass(frozen=True, slots=True)
class Flags:
    """Settings in the order in which XLA applies them.

    Attributes:
      catalog: the jaxlib they are for.
      settings: all of them, also those that later ones replace.
      refused: defaults that `ensure` left out, since this jaxlib does not accept them.
    """

    catalog: Catalog
    settings: tuple[Setting, ...] = ()
    refused: tuple[Setting, ...] = ()

    @staticmethod
    def parse(text: str | bytes | None, catalog: Catalog | None = None, origin: str = VARIABLE) -> Flags:
        """The flags in a value of `XLA_FLAGS`, which may name a file; what XLA would not read is left out.

        Wrong flags are kept as they are, and make the merged text as wrong; see `check`.

        Raises:
          UnknownJaxlibError: no catalog was given and no jaxlib is installed.
          ProcessWouldEndError: the value names a file that cannot be opened.
        """
        result = parse(text, catalog)
        if not result.source.openable:
            raise ProcessWouldEndError(f"{result.message}")
        settings = tuple(Setting(token.text, origin) for token in result.tokens)
        return Flags(result.catalog, settings)

    @staticmethod
    def of(values: Mapping[str, object], catalog: Catalog | None = None, origin: str = "program") -> Flags:
        """Flags from names, without dashes, and Python values: bool, number, text, or a list or dict of them.

        Raises:
          TypeError: a value is of another type.
          UnknownJaxlibError: no catalog was given and no jaxlib is installed.
        """
        catalog = Catalog.installed() if catalog is None else catalog
        settings = [
            Setting(f"--{name.removeprefix('--')}={python_value_text(value)}", origin)
            for name, value in values.items()
        ]
        return Flags(catalog, tuple(settings))

    @staticmethod
    def merge(base: Flags, override: Flags) -> Flags:
        """Both, the second after the first: single values are replaced, lists and maps are added to.

        Raises:
          ValueError: the two are for different jaxlibs.
        """
        if base.catalog is not override.catalog:
            versions = f"{base.catalog.version} and {override.catalog.version}"
            raise ValueError(f"flags for different jaxlibs cannot be merged: {versions}")
        settings = (*base.settings, *override.settings)
        return Flags(base.catalog, settings, (*base.refused, *override.refused))

    def ensure(self, defaults: Mapping[str, object] | str, origin: str) -> Flags:
        """These flags, with defaults of a library where nothing is said.

        Defaults come first, so that what is set here is applied over them: it replaces single values, adds to
        lists, and edits them with `+` and `-`. A default that this jaxlib refuses is left out and kept in
        `refused`: it must not end the process of somebody who never asked for it.

        Args:
          defaults: names and Python values (see `of`), or text of flags.
          origin: the library, as messages shall name it.
        """
        given = (
            Flags.parse(defaults, self.catalog, origin)
            if isinstance(defaults, str)
            else Flags.of(defaults, self.catalog, origin)
        )
        good = tuple(each for each in given.settings if _accepted(each, self.catalog))
        refused = tuple(each for each in given.settings if each not in good)
        return Flags(self.catalog, (*good, *self.settings), (*self.refused, *refused))

    @property
    def effective(self) -> tuple[Setting, ...]:
        """The settings that matter to the end, in order: good ones that a later one replaces are left out."""
        return tuple(setting for setting, _ in self._kept())

    def _kept(self) -> list[tuple[Setting, FlagSpec | None]]:
        """The same, each with its flag, None if XLA does not accept it."""
        replaced: set[str] = set()
        kept: list[tuple[Setting, FlagSpec | None]] = []
        for setting, flag in zip(reversed(self.settings), reversed(self._specs()), strict=True):
            if flag is None:
                kept.append((setting, None))
                continue
            target = field_of(flag)
            if target not in replaced:
                kept.append((setting, flag))
            if replaces(flag, _value(setting)):
                replaced.add(target)
        return kept[::-1]

    @property
    def replaced(self) -> tuple[Setting, ...]:
        """The settings that a later one makes meaningless."""
        # Of equal settings the last one stays effective, so they are counted from the end.
        kept = collections.Counter(self.effective)
        rest = []
        for each in reversed(self.settings):
            if kept[each]:
                kept[each] -= 1
            else:
                rest.append(each)
        return tuple(reversed(rest))

    @property
    def text(self) -> str:
        """Canonical text, a value for `XLA_FLAGS`: nothing that is replaced later, each value spelt alike."""
        return join(self.texts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The same, flag by flag."""
        return tuple(
            token_text(setting.text)
            if flag is None
            else flag_text(flag.name, canonical_value(flag, _value(setting)))
            for setting, flag in self._kept()
        )

    def check(self) -> ParseResult:
        """What the jaxlib does with these flags."""
        return parse(join(token_text(each.text) for each in self.settings), self.catalog, files={})

    @property
    def origins(self) -> dict[str, tuple[str, ...]]:
        """Field of DebugOptions (or flag that has none) -> who gave it its value, the last one last."""
        found: dict[str, tuple[str, ...]] = {}
        for setting in self.effective:
            flag = self.catalog.flags.get(setting.name)
            key = setting.name if flag is None else field_of(flag)
            found[key] = (*(each for each in found.get(key, ()) if each != setting.origin), setting.origin)
        return found

    def origin_of(self, name: str) -> str | None:
        """Who had the last word on a flag or a field; None: nobody, it has its default."""
        flag = self.catalog.flags.get(name)
        found = self.origins.get(name if flag is None else field_of(flag))
        return found[-1] if found else None

    def _specs(self) -> list[FlagSpec | None]:
        """For each setting its flag, None if XLA does not accept it."""
        good: dict[str, FlagSpec | None] = {}
        for each in self.settings:
            if each.text not in good:
                accepted = _accepted(each, self.catalog)
                good[each.text] = self.catalog.flags.get(each.name) if accepted else None
        ended = False
        specs = []
        for each in self.settings:
            ended = ended or each.text == "--"
            specs.append(None if ended else good[each.text])
        return specs


def _accepted(setting: Setting, catalog: Catalog) -> bool:
    return parse(token_text(setting.text), catalog, files={}).ok


def _value(setting: Setting) -> str:
    _, equals, value = setting.text.partition("=")
    return value if equals else "true"


def field_of(flag: FlagSpec) -> str:
    """The field a flag writes; its own name if it writes none."""
    return flag.field.name if flag.field is not None else flag.name


def replaces(flag: FlagSpec, value: str) -> bool:
    """Whether, after a flag with a good value, it does not matter what earlier flags wrote into its field."""
    if flag.kind is FlagKind.ENUM_LIST:
        pieces = [piece for piece in (each.strip(BLANK) for each in value.split(",")) if piece]
        return not value or (bool(pieces) and pieces[0][0] not in "+-")
    return not (flag.kind.appends or flag.kind in (FlagKind.MAP, FlagKind.BOOL_AS_MEMBER))
