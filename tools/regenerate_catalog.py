"""Writes the flag catalog of the installed jaxlib into the package, from what that jaxlib does.

PYTHONPATH=flags python tools/regenerate_catalog.py [--check] [FOLDER]

Run it with the Python whose jaxlib is meant. It asks a thousand questions and takes about twenty seconds.
With --check it writes nothing and ends with status 1 if the file that is there differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from xla_flags.generate import catalog_text
from xla_flags.observe import observe_installed
from xla_flags.schema import DATA


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    folders = [each for each in arguments if each != "--check"]
    catalog = observe_installed()
    path = Path(folders[0] if folders else DATA) / f"catalog-{catalog['jaxlib']}.json"
    text = catalog_text(catalog)
    if check:
        same = path.is_file() and path.read_text() == text
        print(f"{path.name} {'is what this jaxlib does' if same else 'differs from what this jaxlib does'}")
        return 0 if same else 1
    path.write_text(text)
    print(f"wrote {path}: {len(catalog['flags'])} flags, {len(catalog['fields'])} fields")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
