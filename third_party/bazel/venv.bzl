"""The Python toolchain: the interpreter of the checkout's .venv, found when the workspace is loaded."""

_BUILD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

py_runtime(
    name = "runtime",
    interpreter_path = "{interpreter}",
    stub_shebang = "#!{interpreter}",
    python_version = "PY3",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _venv_python_impl(repository_ctx):
    checkout = repository_ctx.path(Label("//:WORKSPACE")).dirname
    interpreter = checkout.get_child(".venv").get_child("bin").get_child("python")
    if not interpreter.exists:
        fail("Bazel runs tests with the interpreter and packages of .venv, which is missing: run `make setup` first.")
    repository_ctx.file("BUILD", _BUILD.format(interpreter = interpreter))

venv_python = repository_rule(
    implementation = _venv_python_impl,
    doc = "Declares @venv_python//:toolchain for the checkout's .venv. No path of a machine is written down anywhere.",
    local = True,
)
