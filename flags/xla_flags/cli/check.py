"""`xla-flags check`: whether flags work, why not, what to write instead, and what is in effect.

Invariant: the exit status is 1 if any jaxlib that was asked would fail, whatever else is printed.
"""

from __future__ import annotations

import argparse
import json
import shlex
from typing import Any

from xla_flags import cli
from xla_flags.advise import fixed_for_all, fixed_text
from xla_flags.advise_options import advise_options
from xla_flags.cli.choice import Choice, choose
from xla_flags.cli.effects import effect_rows, print_effects
from xla_flags.cli.matrix import print_matrix
from xla_flags.cli.output import complain, diagnostic_json, print_json, print_remark, say
from xla_flags.cli.parse import verdict
from xla_flags.cli.words import Misuse, add_flags_arguments, value_of, where_from
from xla_flags.compiler_options import CompilerOptionsResult, check_compiler_options
from xla_flags.diagnostics import Severity
from xla_flags.errors import CatalogError
from xla_flags.parser import ParseResult, parse

HELP = "say whether flags work, what is wrong, what to write instead, and what is in effect"
EXAMPLES = """\
  xla-flags check                                      XLA_FLAGS here, the jaxlib installed here
  xla-flags check --xla_gpu_autotune_level=2           some flags, as they would be typed
  xla-flags check "--xla_a=1 --xla_b" --jaxlib=0.10.2  one value, another release
  xla-flags check --jaxlib=all flags.txt               a file of flags, one column for each release known
  xla-flags check --fix "--xla_gpu_graph_level=0"      print nothing but flags that work
  xla-flags check --compiler-options='{"xla_gpu_autotune_level": "two"}'
                                                       what jax.jit(..., compiler_options={...}) would say

exit status: 0 all jaxlibs go on, 1 one of them would end the process or refuse to compile, 2 misuse"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    add_flags_arguments(parser)
    parser.add_argument("--fix", action="store_true", help="print only the flags, with all errors put right")
    parser.add_argument(
        "--compiler-options",
        metavar="JSON",
        help="a dictionary of jax.jit's compiler_options, checked on top of the flags",
    )


def run(arguments: argparse.Namespace) -> int:
    """Checks the flags with each jaxlib."""
    choices = choose(arguments.jaxlib)
    options = _options(arguments.compiler_options)
    value = value_of(arguments.flags)
    results = [parse(value, choice.catalog) for choice in choices]
    if arguments.fix:
        return _print_fixed(results)
    carried = [] if arguments.jaxlib else _carried(value, results[0])
    compiled = [
        check_compiler_options(options, base=result) if options is not None and result.ok else None
        for result in results
    ]
    good = all(result.ok for result in results) and all(each is None or each.ok for each in compiled)
    if arguments.format == "json":
        _print_json(results, compiled, options, carried)
    else:
        _print_text(arguments, choices, results, carried)
        for choice, each in zip(choices, compiled, strict=True):
            if each is not None and options is not None:
                _print_options(choice, each, options)
    good = good and all(each["outcome"] in ("ok", None) for each in carried)
    return cli.EXIT_OK if good else cli.EXIT_WOULD_FAIL


def _options(text: str | None) -> dict[str, Any] | None:
    """The dictionary given as `--compiler-options`."""
    if text is None:
        return None
    try:
        options = json.loads(text)
    except ValueError as error:
        raise Misuse(f"--compiler-options takes JSON, such as '{{\"xla_x\": true}}': {error}") from None
    if not isinstance(options, dict):
        raise Misuse(f"--compiler-options takes a JSON object, not {type(options).__name__}")
    return options


def _print_fixed(results: list[ParseResult]) -> int:
    text = fixed_for_all(results)
    if text is None:
        wrong = next((result for result in results if fixed_text(result) is None), results[-1])
        known = f"no correction is known for all of it with jaxlib {wrong.catalog.version}"
        complain(f"{known}: {wrong.message}")
        return cli.EXIT_WOULD_FAIL
    say(text)
    return cli.EXIT_OK


def _carried(value: str | None, result: ParseResult) -> list[dict[str, Any]]:
    """The verdicts of the other packages with an XLA that are installed here."""
    from xla_flags.carriers import installed_carriers

    found = []
    for carrier in installed_carriers():
        entry: dict[str, Any] = {"name": carrier.name, "version": carrier.version}
        try:
            own = parse(value, carrier.catalog())
            found.append({**entry, "outcome": str(own.outcome), "message": own.message})
        except CatalogError as error:
            found.append({**entry, "outcome": None, "message": str(error)})
    return [each for each in found if (each["name"], each["version"]) != ("jaxlib", result.catalog.version)]


def _print_json(
    results: list[ParseResult],
    compiled: list[CompilerOptionsResult | None],
    options: dict[str, Any] | None,
    carried: list[dict[str, Any]],
) -> None:
    entries = []
    for result, each in zip(results, compiled, strict=True):
        entry = {
            **verdict(result),
            "diagnostics": [diagnostic_json(remark) for remark in result.diagnostics],
            "fixed": fixed_text(result),
            "flags": effect_rows(result),
        }
        if each is not None and options is not None:
            remarks = advise_options(each, options)
            entry["compiler_options"] = {
                "outcome": each.outcome,
                "exception": each.exception,
                "message": each.message,
                "non_default": each.non_default,
                "diagnostics": [diagnostic_json(remark) for remark in remarks],
            }
        entries.append(entry)
    print_json({"value": results[0].source.value, "results": entries, "carriers": carried})


def _print_text(
    arguments: argparse.Namespace,
    choices: tuple[Choice, ...],
    results: list[ParseResult],
    carried: list[dict[str, Any]],
) -> None:
    if not results[0].source.value and arguments.compiler_options:
        return
    say(f"checking {where_from(arguments.flags)}" + _file_note(results[0]))
    if len(results) > 1:
        print_matrix(results)
    for alike in _alike(results):
        title = ", ".join(choices[index].title.removeprefix("jaxlib ") for index in alike)
        _print_result(f"jaxlib {title}", results[alike[0]], brief=len(results) > 1)
    common = fixed_for_all(results) if len(results) > 1 else None
    if common is not None and common != results[0].source.text:
        say()
        _print_works("works with all of them", common)
    for each in carried:
        outcome = {"ok": "goes on", None: "unknown"}.get(each["outcome"], "would end the process")
        message = f": {each['message']}" if each["message"] else ""
        say(f"{each['name']} {each['version']}, which reads XLA_FLAGS for itself: {outcome}{message}")


def _alike(results: list[ParseResult]) -> list[list[int]]:
    """Indices of results of which there is the same to say, together."""
    groups: dict[Any, list[int]] = {}
    for index, result in enumerate(results):
        serious = tuple(each for each in result.diagnostics if each.severity is not Severity.NOTE)
        changed = None if result.changed is None else len(result.changed)
        groups.setdefault((result.message, serious, changed, fixed_text(result)), []).append(index)
    return [*groups.values()]


def _file_note(result: ParseResult) -> str:
    file = result.source.file
    return f", a file: {file}" if file is not None and result.source.openable else ""


def _print_result(title: str, result: ParseResult, brief: bool) -> None:
    say()
    if result.ok:
        count = len(result.changed or {})
        options = (
            "no option differs" if not count else f"{count} option{'s differ' if count > 1 else ' differs'}"
        )
        say(f"{title}: goes on; {options} from the default", "bold green")
    else:
        say(f"{title}: would end the process", "bold red")
        say(f"  {result.message}")
    for remark in result.diagnostics:
        if not brief or remark.severity is not Severity.NOTE:
            print_remark(remark, result.source.text if remark.span is not None else result.source.value or "")
    if not brief:
        print_effects(result)
    fixed = fixed_text(result)
    if fixed is not None and fixed != result.source.text:
        _print_works("works", fixed)


def _print_works(what: str, text: str) -> None:
    say(f"{what}: XLA_FLAGS={shlex.quote(text)}" if text else f"{what}: no flags at all", "bold")


def _print_options(choice: Choice, result: CompilerOptionsResult, options: dict[str, Any]) -> None:
    if result.ok:
        say(f"{choice.title}: compiling with these compiler_options goes on", "bold green")
        for name in options:
            if name in result.catalog.fields:
                say(f"  {name} = {result.debug_options[name]!r}")
        return
    say(f"{choice.title}: compiling would raise {result.exception}", "bold red")
    say(f"  {result.message}")
    for remark in advise_options(result, options):
        print_remark(remark, "")
