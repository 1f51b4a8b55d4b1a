"""How long xla_flags takes: importing it, loading catalogs, parsing. Prints milliseconds.

PYTHONPATH=flags python benchmarks/flags.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

from xla_flags import Catalog, FlagKind, FlagSpec, check_compiler_options, parse, shipped_versions
from xla_flags.schema import DATA

SAMPLES = {
    FlagKind.BOOL: "true",
    FlagKind.INT32: "7",
    FlagKind.INT64: "7",
    FlagKind.FLOAT: "0.5",
    FlagKind.STRING: "/tmp/x",
    FlagKind.ENUM_LIST: "",
    FlagKind.WORD: "none",
}


def best(function: Callable[[], object], repeat: int = 50) -> float:
    """Least time of a call, in milliseconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times) * 1000


def hundred_flags(catalog: Catalog) -> str:
    """A text of a hundred flags of all kinds, with values they take."""

    def value(flag: FlagSpec) -> str:
        if flag.kind is FlagKind.ENUM and flag.enum is not None:
            return next(iter(flag.enum.numbers))
        return SAMPLES[flag.kind]

    kinds = {*SAMPLES, FlagKind.ENUM}
    known = [flag for flag in catalog.flags.values() if flag.kind in kinds]
    chosen = sorted(known, key=lambda flag: flag.kind in (FlagKind.BOOL, FlagKind.INT32))[:100]
    return " ".join(f"--{flag.name}={value(flag)}" for flag in chosen)


def import_time(then: str = "") -> float:
    """Milliseconds that importing xla_flags takes in a new process, and a statement after that."""
    code = f"import time; t = time.perf_counter(); import xla_flags{then}; print(time.perf_counter() - t)"
    times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    return min(times) * 1000


def main() -> None:
    print(f"import xla_flags                     {import_time():8.3f} ms")
    print(f"import it and its parser             {import_time('; xla_flags.parse'):8.3f} ms")
    for version in shipped_versions():
        path = DATA / f"catalog-{version}.json"
        took = best(lambda path=path: Catalog.from_json(json.loads(path.read_bytes())), 10)  # type: ignore[misc]
        print(f"load the catalog of {version:10}       {took:8.3f} ms")
    catalog = Catalog.for_jaxlib(shipped_versions()[-1])
    text = hundred_flags(catalog)
    assert parse(text, catalog).ok
    print(f"parse 100 flags ({len(text)} characters)   {best(lambda: parse(text, catalog)):8.3f} ms")
    options = {"xla_gpu_command_buffer_update_mode": "SKIP_TEMP", "xla_gpu_autotune_level": 0}
    took = best(lambda: check_compiler_options(options, catalog))
    print(f"check 2 compiler options             {took:8.3f} ms")
    for name, text in {
        "1 MB of spaces": " " * 1_000_000 + "-",
        "1 MB in quotes": '--xla_dump_to="' + 'a\\"' * 333_000,
        "1 MB of flags": "--xla_dump_to=a " * 62_500,
        "1 MB of digits": "--xla_gpu_autotune_gemm_rtol=0." + "1" * 1_000_000,
        "1 MB of members": "--xla_gpu_enable_command_buffer=+FUSION" + ",+FUSION" * 125_000,
    }.items():
        print(f"{name:36} {best(lambda text=text: parse(text, catalog), 3):8.1f} ms")  # type: ignore[misc]


if __name__ == "__main__":
    main()
