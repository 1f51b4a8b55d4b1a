"""XLA's flags as flags of a program that uses absl, to be given on its own command line.

Nothing is defined at import. Invariant: a flag that was defined here reads its value as XLA does, and what
the user has put into `XLA_FLAGS` wins over it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, MutableMapping
from typing import Any

from absl import flags as absl_flags

from xla_flags import environ as environment
from xla_flags.diagnostics import Severity
from xla_flags.errors import XlaFlagsError
from xla_flags.merge import VARIABLE, Flags, Setting
from xla_flags.parser import parse
from xla_flags.schema import BOOL_KINDS, Catalog, FlagKind, FlagSpec
from xla_flags.spelling import flag_text, join, token_text
from xla_flags.subject import shown

ORIGIN = "command line"
"""The origin, in `Flags`, of what was given to absl."""

_MANY = frozenset({FlagKind.ENUM_LIST, FlagKind.MAP, *(kind for kind in FlagKind if kind.appends)})
_MARK = "_xla_flag"


class _XlaParser(absl_flags.ArgumentParser[str]):
    """Takes the text that XLA's own setter takes, and keeps it as text."""

    def __init__(self, flag: FlagSpec, catalog: Catalog) -> None:
        super().__init__()
        self._flag = flag
        self._catalog = catalog
        self.syntactic_help = ""

    def parse(self, argument: Any) -> str:
        """The text itself.

        Raises:
          ValueError: XLA would refuse it; with what to write instead.
        """
        text = str(argument)
        result = parse(flag_text(self._flag.name, text), self._catalog, files={})
        if result.ok:
            return text
        remark = next(each for each in result.diagnostics if each.severity is Severity.ERROR)
        better = f"; write {remark.suggestion}" if remark.suggestion else ""
        raise ValueError(f"{remark.message}{better}")

    def flag_type(self) -> str:
        """The type as absl's help names it."""
        return str(self._flag.type)


class _MemberParser(_XlaParser):
    """The same for an enum, whose value is a member."""

    def parse(self, argument: Any) -> str:
        """The member of that name.

        Raises:
          ValueError: XLA would refuse it; with what to write instead.
        """
        assert self._flag.enum is not None
        return self._flag.enum.python_class(super().parse(argument))


def define_flags(
    names: Iterable[str] | None = None,
    flag_values: Any = absl_flags.FLAGS,
    catalog: Catalog | None = None,
) -> tuple[str, ...]:
    """Defines absl flags for flags of XLA; those that are defined already stay.

    A bool is an absl bool (`--noxla_...` works), numbers are numbers, an enum is one whose values `--help`
    shows and whose value is a member, and what holds many values may be given many times.

    Args:
      names: without dashes; None: all flags of this jaxlib.
      flag_values: where they are defined.
      catalog: the jaxlib; None: the installed one.

    Returns:
      The names that were defined.

    Raises:
      XlaFlagsError: this jaxlib has no flag of such a name.
      UnknownJaxlibError: no catalog was given and no jaxlib is installed.
    """
    catalog = Catalog.installed() if catalog is None else catalog
    module = sys._getframe(1).f_globals.get("__name__", __name__)
    module = sys.argv[0] if module == "__main__" else module
    defined = []
    for name in dict.fromkeys(catalog.flags if names is None else names):
        spec = catalog.flags.get(name)
        if spec is None:
            raise XlaFlagsError(_no_such_flag(name, catalog))
        if name not in flag_values:
            flag = _absl_flag(spec, catalog)
            setattr(flag, _MARK, spec)
            absl_flags.DEFINE_flag(flag, flag_values, module)
            defined.append(name)
    return tuple(defined)


def _no_such_flag(name: str, catalog: Catalog) -> str:
    result = parse(f"--{name}=", catalog, files={})
    return "; ".join(each.message for each in result.diagnostics) or f"no flag {shown(name)}"


def _absl_flag(spec: FlagSpec, catalog: Catalog) -> Any:
    """The absl flag for a flag of XLA, with XLA's default."""
    text = f"A {spec.type} of XLA (jaxlib {catalog.version})."
    field = spec.field
    kind = spec.kind
    default: Any
    if kind in _MANY:
        parser = _XlaParser(spec, catalog)
        listing = f" Members: {', '.join(spec.enum.numbers)}." if spec.enum is not None else ""
        text = f"{text}{listing} XLA's default: {spec.default or 'empty'}."
        multi: Any = absl_flags.MultiFlag
        return multi(parser, absl_flags.ArgumentSerializer(), spec.name, None, text)
    if kind in BOOL_KINDS and kind is not FlagKind.FALSE_ONLY:
        return absl_flags.BooleanFlag(spec.name, _bool_default(spec), text)
    if kind is FlagKind.ENUM and field is not None and spec.enum is not None:
        parser = _MemberParser(spec, catalog)
        text = f"<{'|'.join(spec.enum.numbers)}>: {text}"
        default = spec.enum.python_class(str(field.default))
        return absl_flags.Flag(parser, absl_flags.ArgumentSerializer(), spec.name, default, text)
    if kind in (FlagKind.WORD, FlagKind.WORD_ANY_CASE):
        of_member = {member: word for word, member in spec.words.items()}
        default = of_member.get(str(field.default)) if field is not None else None
        exact = kind is FlagKind.WORD
        return absl_flags.EnumFlag(spec.name, default, text, [*spec.words], case_sensitive=exact)
    if kind is FlagKind.ENUM_ANY_CASE and field is not None and spec.enum is not None:
        values = [*spec.enum.numbers]
        return absl_flags.EnumFlag(spec.name, str(field.default), text, values, case_sensitive=False)
    if kind in (FlagKind.INT32, FlagKind.INT64) and field is not None:
        bits = 31 if kind is FlagKind.INT32 else 63
        least = -(1 << bits) if spec.minimum is None else spec.minimum
        number = absl_flags.IntegerParser(least, (1 << bits) - 1)
        return absl_flags.Flag(number, absl_flags.ArgumentSerializer(), spec.name, field.default, text)
    if kind is FlagKind.FLOAT and field is not None:
        return absl_flags.Flag(
            absl_flags.FloatParser(), absl_flags.ArgumentSerializer(), spec.name, field.default, text
        )
    parser = _XlaParser(spec, catalog)
    default = field.default if field is not None and isinstance(field.default, str) else None
    return absl_flags.Flag(parser, absl_flags.ArgumentSerializer(), spec.name, default, text)


def _bool_default(spec: FlagSpec) -> bool | None:
    """What saying nothing amounts to; None: neither true nor false, a third member being the default."""
    value = spec.field.default if spec.field is not None else None
    if spec.kind is FlagKind.BOOL_AS_WORD:
        of_member = {member: word == "true" for word, member in spec.words.items()}
        return of_member.get(str(value))
    if spec.kind is FlagKind.BOOL_AS_MEMBER:
        return spec.words["true"] in (value or ())
    return value if isinstance(value, bool) else None


def _settings(flag_values: Any) -> list[str]:
    """The flags that the user set, as XLA reads them."""
    if not flag_values.is_parsed():
        raise absl_flags.UnparsedFlagAccessError(
            "the program's flags are not parsed yet; call this in main()"
        )
    texts = []
    for name in flag_values:
        flag = flag_values[name]
        spec: FlagSpec | None = getattr(flag, _MARK, None)
        if spec is None or flag.using_default_value or flag.value is None:
            continue
        values = flag.value if isinstance(flag.value, list) else [flag.value]
        texts += [f"--{spec.name}={_text(value)}" for value in values]
    return texts


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def to_xla_flags(flag_values: Any = absl_flags.FLAGS) -> str:
    """Text for `XLA_FLAGS` of the flags that `define_flags` defined and the user set.

    Raises:
      absl.flags.UnparsedFlagAccessError: the command line is not parsed yet.
    """
    return join(token_text(each) for each in _settings(flag_values))


def apply_to_environ(
    flag_values: Any = absl_flags.FLAGS,
    environ: MutableMapping[str, str] | None = None,
    catalog: Catalog | None = None,
) -> Flags:
    """Puts the flags that the user gave to the program into `XLA_FLAGS`, under what is there already.

    Call it in `main`, before JAX creates its backend.

    Returns:
      The flags as they are now, with where each came from.

    Raises:
      AlreadyReadError: XLA has read the variable, and something would change.
      absl.flags.UnparsedFlagAccessError: the command line is not parsed yet.
    """
    user = Flags.parse((os.environ if environ is None else environ).get(VARIABLE), catalog)
    given = Flags(user.catalog, tuple(Setting(each, ORIGIN) for each in _settings(flag_values)))
    return environment.apply(Flags.merge(given, user), environ)
