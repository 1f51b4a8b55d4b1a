"""What each Python package of this repository is to Bazel."""

def py_package(name, deps = [], **kwargs):
    """A library of all modules and data files below a BUILD file.

    Args:
      name: the package's folder, so that //path/to/name needs no colon.
      deps: the packages it may import; tests/test_architecture.py checks the same on the source.
      **kwargs: passed to py_library.
    """
    native.py_library(
        name = name,
        srcs = native.glob(["**/*.py"]),
        data = native.glob(
            ["**"],
            exclude = [
                "**/*.py",
                "**/__pycache__/**",
                "BUILD",
            ],
        ),
        visibility = ["//visibility:public"],
        deps = deps,
        **kwargs
    )
