"""Asks jaxlib releases which flags they know, and writes flags/xla_flags/data/history.json.

    python tools/record_flag_history.py 0.9.2 0.10.0      # adds these releases to the file
    python tools/record_flag_history.py --shipped         # adds those that have a catalog in data/

Each release's wheel is fetched by pip into a temporary folder and asked, in forks that may end, about every
string in it that could be a flag's name. Needs a Python that these wheels are built for.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
HISTORY = ROOT / "flags/xla_flags/data/history.json"

ASK = r"""
import json, os, re, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
os.environ.pop("XLA_FLAGS", None)
library = max(Path(sys.argv[1]).glob("jaxlib/**/*.so"), key=lambda path: path.stat().st_size)
strings = re.findall(rb"(?<![a-z0-9_])(xla_[a-z0-9_]+)\0", library.read_bytes())
try:
    import jaxlib._jax as jax
except ImportError:
    import jaxlib.xla_extension as jax

def errors_of(value):
    errors = os.memfd_create("errors")
    pid = os.fork()
    if not pid:
        os.dup2(errors, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.environ["XLA_FLAGS"] = value
        jax.CompileOptions().executable_build_options.debug_options
        os._exit(0)
    os.waitpid(pid, 0)
    text = os.pread(errors, os.fstat(errors).st_size, 0)
    os.close(errors)
    return text

assert b"Unknown flag" in errors_of("--xla_no_such_flag=1"), "this jaxlib does not read its flags here"
names = sorted({each.decode() for each in strings})
print(json.dumps([name for name in names if b"Unknown flag" not in errors_of(f"--{name}=\x01")]))
"""


def known_flags(version: str, python: str) -> list[str]:
    """The flags a release knows, asked of its wheel."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                python,
                *("-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d"),
                folder,
                f"jaxlib=={version}",
            ],
            check=True,
        )
        wheel = next(Path(folder).glob("*.whl"))
        zipfile.ZipFile(wheel).extractall(Path(folder, "wheel"))
        wheel.unlink()
        asked = subprocess.run(
            [python, "-c", ASK, str(Path(folder, "wheel"))], check=True, capture_output=True, text=True
        )
    names: list[str] = json.loads(asked.stdout)
    return names


def shipped_flags() -> dict[str, list[str]]:
    """The flags of the releases that have a catalog."""
    sys.path.insert(0, str(ROOT / "flags"))
    from xla_flags.schema import Catalog, shipped_versions

    return {version: [*Catalog.for_jaxlib(version).flags] for version in shipped_versions()}


def version_key(version: str) -> tuple[int, ...]:
    """Sorts versions as numbers."""
    return tuple(int(part) for part in version.split("."))


def read(path: Path) -> dict[str, set[str]]:
    """Release -> its flags."""
    if not path.exists():
        return {}
    data = json.loads(path.read_text())
    return {
        release: {name for name, (first, last) in data["flags"].items() if first <= index <= last}
        for index, release in enumerate(data["releases"])
    }


def written(known: dict[str, set[str]]) -> str:
    """The file's text: releases, and for each flag the index of the first and the last that know it."""
    releases = sorted(known, key=version_key)
    lines = []
    for name in sorted(set().union(*known.values())):
        having = [index for index, release in enumerate(releases) if name in known[release]]
        if len(having) != having[-1] - having[0] + 1:
            raise SystemExit(f"{name} went and came back; the file's form has no place for that")
        lines.append(f'"{name}":[{having[0]},{having[-1]}]')
    return f'{{"releases":{json.dumps(releases)},\n"flags":{{\n' + ",\n".join(lines) + "\n}}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--shipped", action="store_true", help="add the releases with a catalog in data/")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to run the wheels with")
    arguments = parser.parse_args()
    known = read(HISTORY)
    if arguments.shipped:
        known |= {version: set(names) for version, names in shipped_flags().items()}
    for version in arguments.versions:
        known[version] = set(known_flags(version, arguments.python))
        print(f"jaxlib {version}: {len(known[version])} flags")
    HISTORY.write_text(written(known))


if __name__ == "__main__":
    main()
