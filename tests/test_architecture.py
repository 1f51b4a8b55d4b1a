"""The rules that keep the code one-directional, small and movable, as tables; a failure names the lines.

Invariant: nothing here imports the code it judges, except in processes of their own.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Part of jax_cmdbuf -> the parts it may import besides itself. A name covers all modules below it. Calls go
# down only: who is below never learns who is above; executable and stream_executor meet only in runtime.
MAY_IMPORT = {
    "errors": (),
    "events": (),
    "_jax": (),
    "executable": ("_jax",),
    "stream_executor": (),
    "runtime": ("executable", "stream_executor"),
    "report": ("executable", "runtime"),
    "api": ("executable", "report", "runtime", "stream_executor", "_jax"),
    "plugin": ("api", "_jax"),
    "cli": ("api", "report"),
    "__main__": ("cli",),
}
FREE_TO_IMPORT = ("errors", "events")

# Package -> the only modules that may import it, anywhere in the module and by any spelling.
USES_JAX = r"jax_cmdbuf\.(api(\..*)?|plugin|_jax|executable\.compile\w*)"
CONFINED = {
    "absl": r"xla_flags\.absl",
    "cramjam": r"jax_cmdbuf\.executable\..*",
    "cuda": r"jax_cmdbuf\.stream_executor\.cuda\w*",
    "google": r"jax_cmdbuf\.executable\..*",
    "jax": USES_JAX,
    "jax_cmdbuf._jax": USES_JAX,
    "jaxlib": USES_JAX,
    "numpy": USES_JAX,
    "rich": r"(jax_cmdbuf\.(report\.terminal\w*|cli(\..*)?)|xla_flags\.cli(\..*)?)",
}
# Only the choice of a backend may name one.
BACKENDS = re.compile(r"jax_cmdbuf\.stream_executor\.(simulated|cuda)\w*")
CHOOSES_BACKEND = "jax_cmdbuf.api.session"

# Test files that mirror no module, and why.
WITHOUT_MODULE = {
    "tests/test_architecture.py": "judges the whole tree",
}
WITHOUT_MODULE_FOLDERS = (
    "tests/groundtruth/",  # replays of recorded behaviour, through many modules
    "tests/gpu/",  # whole programs on a CUDA device, compared with XLA
)

MAX_LINES = 400
MAX_FUNCTION_LINES = 50
REGISTRY_HOSTS = (r"pypi\.org", r"pythonhosted", r"npmjs", r"deb\.debian", r"golang\.org", r"anaconda\.")
MACHINE_PATHS = (r"(?<![\w.])/work/", r"(?<![\w.])/root/", r"/home/\w+/", r"/tmp/bash", r"/opt/py", r"/farm/")
BINARY_SUFFIXES = {".bin", ".gz", ".npy", ".npz", ".pb", ".png"}


@functools.cache
def files() -> tuple[str, ...]:
    """Every file of the checkout that is committed or about to be, relative to its top."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        return tuple(sorted(name for name in listed.stdout.splitlines() if (ROOT / name).is_file()))
    # Unpacked archives and Bazel's runfiles have no history; there, what lies there is what there is.
    found = (path for path in ROOT.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return tuple(sorted(path.relative_to(ROOT).as_posix() for path in found))


@functools.cache
def modules() -> dict[str, str]:
    """Dotted name -> file, for both import packages."""
    names = {}
    for name in files():
        if name.endswith(".py") and name.startswith(("jax_cmdbuf/", "flags/xla_flags/")):
            parts = Path(name.removeprefix("flags/")).with_suffix("").parts
            names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = name
    return names


@functools.cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(), filename=name)


def imports(module: str) -> list[tuple[int, str]]:
    """(line, absolute dotted name) of all that a module imports, in functions and by import_module too."""
    name = modules()[module]
    package = module.split(".") if name.endswith("__init__.py") else module.split(".")[:-1]
    found = []
    for node in ast.walk(tree(name)):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, alias.name) for alias in names]
            case ast.ImportFrom(module=source, names=names, level=level):
                base = [*package[: len(package) + 1 - level]] if level else []
                base += source.split(".") if source else []
                for alias in names:
                    dotted = ".".join([*base, alias.name])
                    found.append((node.lineno, dotted if dotted in modules() else ".".join(base)))
            case ast.Call(
                func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(target)), *_]
            ):
                found.append((node.lineno, target))
    return found


def for_types_only(module: str) -> set[int]:
    """The lines of a module that only a type checker reads."""
    return {
        line
        for node in ast.walk(tree(modules()[module]))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def below(part: str) -> tuple[str, ...]:
    """Everything a part reaches through the parts it may import."""
    direct = MAY_IMPORT.get(part, ())
    return (*direct, *itertools.chain(*(below(each.split(".")[0]) for each in direct)))


def covers(rows: tuple[str, ...], part: str) -> bool:
    return any(part == row or part.startswith(row + ".") for row in rows)


def violations(found: list[str]) -> None:
    assert not found, "\n" + "\n".join(dict.fromkeys(found))


def test_both_packages_are_seen() -> None:
    assert {"jax_cmdbuf", "xla_flags", "jax_cmdbuf.errors"} <= modules().keys()


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {Path(name).parent for name in modules().values()}
    violations(
        [
            f"{folder}: has no __init__.py"
            for folder in folders
            if not (ROOT / folder / "__init__.py").exists()
        ]
    )


def test_imports_inside_the_distribution_go_down() -> None:
    found = []
    for module in modules():
        types_only = for_types_only(module)
        for line, target in imports(module):
            where = f"{modules()[module]}:{line}: imports {target}"
            if module.startswith("xla_flags") and target.startswith("jax_cmdbuf"):
                found.append(f"{where}: xla_flags knows nothing of jax_cmdbuf")
            if module == "jax_cmdbuf" or not module.startswith("jax_cmdbuf"):
                continue
            if target == "jax_cmdbuf" or not target.startswith("jax_cmdbuf."):
                if target == "jax_cmdbuf" and not module.startswith(("jax_cmdbuf.cli", "jax_cmdbuf.api")):
                    found.append(f"{where}: the facade is for users")
                continue
            part, wanted = module.removeprefix("jax_cmdbuf."), target.removeprefix("jax_cmdbuf.")
            own = part.split(".")[0]
            if own not in MAY_IMPORT:
                found.append(f"{modules()[module]}: {own} has no row in MAY_IMPORT")
            elif line in types_only and covers(below(own), wanted):
                continue  # what api returns has a type, and the type a home further down
            elif not covers((own, *FREE_TO_IMPORT, *MAY_IMPORT[own]), wanted):
                found.append(
                    f"{where}: {own} may import {', '.join(MAY_IMPORT[own]) or 'nothing but itself'}"
                )
    violations(found)


def test_third_party_packages_stay_where_they_belong() -> None:
    found = []
    for module in modules():
        for line, target in imports(module):
            top = target if target in CONFINED else target.split(".")[0]
            if top in sys.stdlib_module_names or top in ("jax_cmdbuf", "xla_flags"):
                continue
            if top not in CONFINED:
                found.append(f"{modules()[module]}:{line}: {top} is not a dependency with a place")
            elif not re.fullmatch(CONFINED[top], module):
                found.append(
                    f"{modules()[module]}:{line}: imports {target}, which belongs in {CONFINED[top]}"
                )
    violations(found)


def test_only_the_session_names_a_backend() -> None:
    violations(
        [
            f"{modules()[module]}:{line}: imports {target}; only {CHOOSES_BACKEND} chooses a backend"
            for module in modules()
            for line, target in imports(module)
            if BACKENDS.fullmatch(target) and module != CHOOSES_BACKEND and not BACKENDS.fullmatch(module)
        ]
    )


def expected_test(module_file: str) -> str:
    path = Path(module_file)
    folder = (
        path.parent.as_posix().replace("flags/xla_flags", "tests/flags", 1).replace("jax_cmdbuf", "tests", 1)
    )
    return f"{folder}/test_{path.stem.lstrip('_')}.py"


def test_every_module_has_its_test_file_and_no_test_is_an_orphan() -> None:
    tests = {name for name in files() if re.fullmatch(r"tests/(.*/)?test_\w+\.py", name)}
    sources = [name for name in modules().values() if Path(name).stem not in ("__init__", "__main__")]
    expected = {expected_test(name): name for name in sources}
    packages = {expected_test(name).replace("test_init__", "test_init") for name in modules().values()}
    found = [f"{name}: {test} is missing" for test, name in expected.items() if test not in tests]
    for test in sorted(tests - expected.keys() - packages - WITHOUT_MODULE.keys()):
        if not test.startswith(WITHOUT_MODULE_FOLDERS):
            found.append(f"{test}: tests no module of that name")
    violations(found)


def test_files_and_functions_stay_small() -> None:
    found = []
    for name in files():
        if not name.endswith(".py"):
            continue
        lines = len((ROOT / name).read_text().splitlines())
        if lines >= MAX_LINES:
            found.append(f"{name}: {lines} lines; a file stays under {MAX_LINES}")
        if name not in modules().values():
            continue
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length >= MAX_FUNCTION_LINES:
                    found.append(f"{name}:{node.lineno}: {node.name} has {length} lines, a function under 50")
    violations(found)


def test_modules_say_what_they_are_and_have_names_of_their_own() -> None:
    found = []
    for module, name in modules().items():
        stem = module.split(".")[-1]
        if ast.get_docstring(tree(name)) is None:
            found.append(f"{name}: does not open with what it is")
        if re.search(r"util|helper|misc|common", stem):
            found.append(f"{name}: the name says nothing")
        if stem in sys.stdlib_module_names and stem != "__main__":
            found.append(f"{name}: takes the name of a standard module")
    violations(found)


def test_only_entry_points_swallow_everything() -> None:
    """Cleaning up and raising on is fine anywhere; to end an unknown error's way is for the outermost."""
    allowed = {"initialize", "main"}
    found = []
    for name in modules().values():
        inside = {
            id(child): function.name
            for function in ast.walk(tree(name))
            if isinstance(function, ast.FunctionDef)
            for child in ast.walk(function)
        }
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ExceptHandler) and inside.get(id(node)) not in allowed:
                if isinstance(node.body[-1], ast.Raise):
                    continue
                caught = ast.unparse(node.type) if node.type else "everything"
                if node.type is None or re.search(r"\b(Base)?Exception\b", caught):
                    found.append(f"{name}:{node.lineno}: catches {caught}")
    violations(found)


def in_a_new_process(code: str) -> str:
    """Standard output of Python code that sees this checkout and nothing of this process."""
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'flags')!r}]\n"
    done = subprocess.run(
        [sys.executable, "-c", path + code], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "statement", ["import jax_cmdbuf", "import xla_flags", "import jax_cmdbuf, xla_flags"]
)
def test_importing_costs_no_heavy_package(statement: str) -> None:
    report = "print(sorted({name.split('.')[0] for name in sys.modules} & heavy))"
    heavy = {*CONFINED, "flax", "optax", "ml_dtypes", "yaml"} - {"google"}
    # A .pth file of an installed namespace package may put an empty `google` there before any import of ours.
    before = "assert 'google.protobuf' not in sys.modules"
    assert in_a_new_process(f"heavy = {heavy!r}\n{statement}\n{before}\n{report}") == "[]\n"


def test_flags_are_checked_where_jax_cannot_be_imported() -> None:
    code = """
sys.modules.update(dict.fromkeys(("jax", "jaxlib", "numpy", "google.protobuf", "absl")))
from xla_flags.cli import main
print(main(["check", "--jaxlib=0.12.0.1", "--", "--xla_gpu_nope=1"]))
"""
    assert in_a_new_process(code).endswith("\n1\n")


def test_exported_names_exist_once() -> None:
    code = """
import importlib
for name in {names!r}:
    module = importlib.import_module(name)
    exported = list(getattr(module, "__all__", ()))
    if len(set(exported)) != len(exported):
        print(name, "exports a name twice")
    for each in exported:
        if not hasattr(module, each):
            print(name, "exports", each, "which does not exist")
"""
    names = [name for name in sorted(modules()) if not name.endswith("__main__")]
    assert (
        in_a_new_process("import os; os.environ['JAX_PLATFORMS'] = 'cpu'\n" + code.format(names=names)) == ""
    )


def test_dependencies_are_declared_pinned_and_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[><=~ ]", requirement)[0].lower() for requirement in declared}
    explained = (ROOT / "third_party/README.md").read_text().lower()
    found = [
        f"{name}: no row in third_party/README.md" for name in sorted(names) if f"| {name} " not in explained
    ]
    for pins in sorted((ROOT / "third_party/py").glob("*.txt")):
        lines = [line for line in pins.read_text().splitlines() if not line.startswith("#")]
        found += [
            f"{pins.name}: {line} is not a pin"
            for line in lines
            if not re.fullmatch(r"[\w.-]+==[\w.]+", line)
        ]
        pinned = {line.split("==")[0].lower() for line in lines}
        found += [f"{pins.name}: {name} is missing" for name in sorted(names - pinned)]
    violations(found)


def test_no_file_names_a_registry_or_this_machine() -> None:
    forbidden = re.compile("|".join((*REGISTRY_HOSTS, *MACHINE_PATHS)))
    found = []
    for name in files():
        path = ROOT / name
        if path.suffix in BINARY_SUFFIXES or name.startswith("tests/data/") or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            if match := forbidden.search(line):
                found.append(f"{name}:{number}: contains {match.group()}")
    violations(found)
