"""One Bazel test per folder of tests, run by pytest."""

def pytest_suite(name, deps, srcs = None, data = [], size = "medium"):
    """A py_test that runs the test files of tests/<name>.

    Args:
      name: the folder below tests/; the target is <name>_test.
      deps: the libraries whose sources the tests import.
      srcs: the test files, if not all Python files of the folder.
      data: what the tests read besides tests/data/<name>.
      size: Bazel's test size; medium ends after five minutes.
    """
    srcs = srcs or native.glob([name + "/**/*.py"])
    native.py_test(
        name = name + "_test",
        size = size,
        srcs = srcs + [
            "conftest.py",
            "run_pytest.py",
        ],
        args = ["$(rootpath %s)" % src for src in srcs if src.split("/")[-1].startswith("test_")],
        data = [":pytest_settings"] + data,
        main = "run_pytest.py",
        python_version = "PY3",
        deps = deps,
    )
