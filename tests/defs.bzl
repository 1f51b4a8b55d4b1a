"""One Bazel test per folder of tests, run by pytest."""

def pytest_suite(name, deps, srcs = None, data = None, size = "medium"):
    """A py_test that runs the test files of tests/<name>.

    Args:
      name: the folder below tests/; the target is <name>_test.
      deps: the libraries whose modules the tests import.
      srcs: the test files, if not those of the folder.
      data: what the tests read, if not all of tests/data.
      size: Bazel's test size; medium ends after five minutes.
    """
    if srcs == None:
        srcs = native.glob([name + "/**/test_*.py"])
    if data == None:
        data = native.glob(["data/**"])
    if not srcs:
        fail("tests/%s has no test_*.py; without arguments pytest would run something else" % name)
    native.py_test(
        name = name + "_test",
        size = size,
        srcs = srcs + ["run_pytest.py"],
        args = ["$(rootpath %s)" % test for test in srcs],
        data = ["//:pyproject.toml"] + data,
        main = "run_pytest.py",
        python_version = "PY3",
        deps = deps + [":shared"],
    )
