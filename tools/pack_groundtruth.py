"""Packs recordings of XLA's own command-buffer grouping into tests/data/executable/.

    python tools/pack_groundtruth.py <command_buffers folder> <va_remap folder> [<folder of 0.10 cases>]

Writes ``executables.tar.xz`` (every serialized executable, as ``<case>.bin``) and ``expected.json.gz``: what
the dumps beside them say, in the shape that the tests compare.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OUT = Path("tests/data/executable")
# "005: kSequential [prev=...] 003: kCopy ...": a sequential thunk's first child follows on the same line.
_ENTRY = re.compile(r"(\d{3,}): (k\w+)\s*\[([^]]*)\]")
_HEADER = re.compile(r"\s*(condition|body|true_branch|false_branch|branch_\d+):\s*$")
_ALLOCATION = re.compile(r"allocation (\d+): size (\d+)(?:, color (\d+))?(?:, page \d+)?(.*):$")
_VALUE = re.compile(r" value: <\d+ (\S+?)(?:\{[^}]*\})?(?: \(phi\))? @")
_DEVICE_FIELDS = ("runtime_version", "driver_version", "compile_time_toolkit_version")


def tokens(text: str) -> Iterator[tuple[int, Any]]:
    """(indentation, entry or None for the header of a nested list)."""
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if _HEADER.match(line):
            yield indent, None
        for number, found in enumerate(_ENTRY.finditer(line)):
            note = re.sub(r"\s+", " ", found[3]).strip()
            yield indent + 2 * number, [found[2], int(found[1]), note, []]


def tree(text: str) -> list[Any]:
    """A thunk dump as nested lists: [kind, id, note, nested lists]."""
    stream = list(tokens(text))
    result, position = _list(stream, 0, 0)
    if position != len(stream):
        raise ValueError(f"cannot read the dump from line {position}")
    return result


def _list(stream: list[tuple[int, Any]], position: int, indent: int) -> tuple[list[Any], int]:
    result = []
    while position < len(stream) and stream[position][0] == indent and stream[position][1] is not None:
        entry = stream[position][1]
        position += 1
        while position < len(stream):
            inner, following = stream[position]
            if following is not None and inner > indent:
                nested, position = _list(stream, position, inner)
            elif following is None and (inner > indent or _wants_list(entry)):
                start = position + 1
                deeper = start < len(stream) and stream[start][1] is not None and stream[start][0] > indent
                nested, position = _list(stream, start, stream[start][0]) if deeper else ([], start)
            else:
                break
            entry[3].append(nested)
        result.append(entry)
    return result, position


def _wants_list(entry: list[Any]) -> bool:
    """Whether the unindented "condition:" that follows belongs to this entry."""
    return bool(entry[0] == "kWhile" and not entry[3])


def allocations(text: str) -> list[Any]:
    """The allocation table: [size, color, class, parameter number, parameter leaf, live out, value names]."""
    table: list[Any] = []
    for line in text.splitlines():
        if found := _ALLOCATION.match(line):
            rest = found[4]
            parameter = re.search(r"parameter (\d+), shape \|.*\| at ShapeIndex \{([\d,]*)\}", rest)
            kinds = [kind for kind in ("thread-local", "constant", "preallocated-temp") if kind in rest]
            leaf = [int(number) for number in parameter[2].split(",") if number] if parameter else []
            assert int(found[1]) == len(table)
            table.append(
                [
                    int(found[2]),
                    int(found[3] or 0),
                    kinds[0] if kinds else "",
                    int(parameter[1]) if parameter else None,
                    leaf,
                    "maybe-live-out" in rest,
                    [],
                ]
            )
        elif table and (value := _VALUE.match(line)) and value[1] not in table[-1][6]:
            table[-1][6].append(value[1])
    return table


def device(text: str) -> dict[str, str]:
    """Name and versions from a target description."""
    names = ("device_description_str", *_DEVICE_FIELDS)
    found = {name: re.search(name + r':\s*"([^"]*)"', text) for name in names}
    return {name: match[1] if match else "" for name, match in found.items()}


def grouping_case(folder: Path, target: Path) -> dict[str, Any]:
    """What one folder's dumps say."""
    before = (folder / "thunk_sequence.txt").read_text()
    after = folder / "thunk_sequence_after_thunk_passes.txt"
    case: dict[str, Any] = {"device": device(target.read_text()), "before": tree(before)}
    if after.exists():
        case["after"] = tree(after.read_text())
    assignment = folder / "buffer-assignment.txt"
    if assignment.exists():
        case["allocations"] = allocations(assignment.read_text())
    return case


def policy_case(folder: Path) -> dict[str, Any]:
    """The allocation counts that XLA logged for one executable: mode -> the events of its construction."""
    traces = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    keep = ("kind", "constants", "persistent", "va_remapped", "candidates")
    return {
        mode: [{key: event[key] for key in keep if key in event} for event in trace["compile_events"]]
        for mode, trace in traces.items()
    }


def main(arguments: list[str]) -> int:
    groups, policies, *others = map(Path, arguments)
    binaries: dict[str, bytes] = {}
    grouping: dict[str, Any] = {}
    for folder in sorted(path.parent for path in groups.glob("*/case.json")):
        meta = json.loads((folder / "case.json").read_text())
        grouping[folder.name] = grouping_case(folder, groups / "_targets" / meta["target"])
        binaries[folder.name] = gzip.decompress((folder / "executable.bin.gz").read_bytes())
    for folder in sorted(path.parent for other in others for path in other.glob("*/executable.bin")):
        grouping[folder.name] = grouping_case(folder, folder / "target.txtpb")
        binaries[folder.name] = (folder / "executable.bin").read_bytes()
    policy = {}
    for folder in sorted(path.parent for path in policies.glob("*/executable.bin.gz")):
        policy[folder.name] = policy_case(folder)
        binaries[f"va_remap-{folder.name}"] = gzip.decompress((folder / "executable.bin.gz").read_bytes())
    OUT.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"grouping": grouping, "policy": policy}, separators=(",", ":"))
    (OUT / "expected.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    with tarfile.open(OUT / "executables.tar.xz", "w:xz", preset=9) as tar:
        for name, content in binaries.items():
            member = tarfile.TarInfo(f"{name}.bin")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
