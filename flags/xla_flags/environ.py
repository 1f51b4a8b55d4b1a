"""This process's own `XLA_FLAGS`: checked before XLA reads it, added to, and compared with what XLA has.

XLA reads the variable once, when JAX creates its first backend; jax is asked, never imported. Invariant: the
variable is only ever changed before that, and only to something XLA accepts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from xla_flags.diagnostics import Diagnostic, Severity
from xla_flags.errors import AlreadyReadError, ProcessWouldEndError
from xla_flags.merge import VARIABLE, Flags
from xla_flags.options import DebugOptions
from xla_flags.parser import ParseResult, parse
from xla_flags.schema import Catalog
from xla_flags.tokens import Span


def already_read() -> str | None:
    """Why it is too late to change `XLA_FLAGS` in this process; None: it is not, as far as JAX tells.

    Not noticed: a `CompileOptions()` that a program made by hand before JAX had any backend.
    """
    bridge = sys.modules.get("jax._src.xla_bridge")
    backends: Mapping[str, object] = getattr(bridge, "_backends", None) or {}
    if not backends:
        return None
    return f"JAX has created its backend ({', '.join(backends)}), and XLA read XLA_FLAGS then"


def check_environ(
    catalog: Catalog | None = None, environ: Mapping[str, str] | None = None
) -> tuple[Diagnostic, ...]:
    """Checks `XLA_FLAGS` while there still is a Python to raise in: XLA ends the process without a trace.

    Args:
      catalog: the jaxlib; None: the installed one.
      environ: the environment; None: this process's.

    Returns:
      Remarks that do not stop XLA: text it never reads, flags without effect.

    Raises:
      ProcessWouldEndError: with what is wrong, where, and what to write instead.
      UnknownJaxlibError: no catalog was given and no jaxlib is installed.
    """
    from xla_flags.rendering import render

    result = parse((os.environ if environ is None else environ).get(VARIABLE), catalog)
    remarks = result.diagnostics
    if not result.ok:
        raise ProcessWouldEndError(
            f"jaxlib {result.catalog.version} would end this process on reading XLA_FLAGS: {result.message}\n"
            + render(result, [each for each in remarks if each.severity is Severity.ERROR])
        )
    return remarks


def ensure(
    defaults: Mapping[str, object] | str,
    origin: str,
    *,
    environ: MutableMapping[str, str] | None = None,
    catalog: Catalog | None = None,
) -> Flags:
    """Puts a library's defaults into `XLA_FLAGS`, under whatever the user has set there.

    Args:
      defaults: flag names and Python values, or text of flags.
      origin: the library, as messages shall name it.
      environ: the environment to change; None: this process's.
      catalog: the jaxlib; None: the installed one.

    Returns:
      The flags as they are now, with who set what. `refused` holds defaults that this jaxlib does not accept.

    Raises:
      AlreadyReadError: XLA has read the variable, and a default is not in effect.
      UnknownJaxlibError: no catalog was given and no jaxlib is installed.
    """
    target = os.environ if environ is None else environ
    user = Flags.parse(target.get(VARIABLE), catalog)
    return apply(user.ensure(defaults, origin), target)


def apply(flags: Flags, environ: MutableMapping[str, str] | None = None) -> Flags:
    """Makes flags the value of `XLA_FLAGS`, unless they mean what is there already.

    Raises:
      AlreadyReadError: XLA has read the variable, and these flags mean something else.
    """
    target = os.environ if environ is None else environ
    before, after = parse(target.get(VARIABLE), flags.catalog), parse(flags.text, flags.catalog, files={})
    if _same(before, after):
        return flags
    reason = already_read() if target is os.environ else None
    if reason is not None:
        raise AlreadyReadError(f"{reason}; set flags before the first array, jit or jax.devices()")
    target[VARIABLE] = flags.text
    return flags


def _same(one: ParseResult, other: ParseResult) -> bool:
    return one.ok and other.ok and one.changed == other.changed and one.log == other.log


def used_options(catalog: Catalog | None = None) -> DebugOptions:
    """The DebugOptions that XLA in this process really works with.

    Args:
      catalog: the jaxlib; None: the installed one.

    Raises:
      AlreadyReadError: the contrary: XLA has not read its flags yet, and asking would make it do so.
      CatalogError: they cannot be read.
    """
    module: Any = sys.modules.get("jaxlib._jax")
    if already_read() is None or module is None:
        raise AlreadyReadError("XLA has not read XLA_FLAGS yet; create a backend first, as by jax.devices()")
    from xla_flags.installed import installed_library
    from xla_flags.observe import OptionsReader
    from xla_flags.probe import Answer

    catalog = Catalog.installed() if catalog is None else catalog
    data = module.CompileOptions().SerializeAsString()
    plain = OptionsReader(installed_library()).read(Answer(0, data, ()))
    return DebugOptions(catalog, {name: value for name, value in plain.items() if name in catalog.fields})


def late_changes(
    catalog: Catalog | None = None, environ: Mapping[str, str] | None = None
) -> tuple[Diagnostic, ...]:
    """Flags in `XLA_FLAGS` now that XLA in this process does not have, because they came too late.

    Empty if XLA has not read the variable yet.
    """
    reason = already_read()
    if reason is None:
        return ()
    result = parse((os.environ if environ is None else environ).get(VARIABLE), catalog)
    used = used_options(result.catalog)
    found = []
    for name, value in result.values.items() if result.ok else ():
        if used[name] == value or result.catalog.fields[name].forced:
            continue
        token = next(
            each.token
            for each in reversed(result.assignments)
            if each.flag.field is not None and each.flag.field.name == name
        )
        message = f"{name} is not in effect: this was set too late ({reason})"
        found.append(Diagnostic(Severity.WARNING, "too-late", token.span, message, None, _BEFORE))
    return tuple(found)


_BEFORE = "set XLA_FLAGS before the program starts, or before the first array, jit or jax.devices()"


def unread_arguments(
    argv: Sequence[str] | None = None, catalog: Catalog | None = None
) -> tuple[Diagnostic, ...]:
    """Flags of XLA among a program's arguments, where XLA does not look for them.

    Those that the program defined as absl flags are left out. Spans count the characters of the arguments,
    joined by blanks.

    Args:
      argv: the arguments after the program's name; None: this process's.
      catalog: the jaxlib; None: the installed one.
    """
    catalog = Catalog.installed() if catalog is None else catalog
    absl: Any = sys.modules.get("absl.flags")
    defined = set(absl.FLAGS) if absl is not None else set()
    words = list(sys.argv[1:] if argv is None else argv)
    found, position = [], 0
    for word in words:
        name = word.lstrip("-").partition("=")[0]
        if word.startswith("--") and name in catalog.flags and name not in defined:
            message = f"XLA reads no arguments of a program; {name} belongs into XLA_FLAGS"
            place = Span(position, position + len(word))
            hint = "a program that uses absl can take it so, after xla_flags.absl.define_flags()"
            found.append(Diagnostic(Severity.WARNING, "argument", place, message, None, hint))
        position += len(word) + 1
    return tuple(found)
