"""What every test runs under: which devices it may see, which environment, and how hard Hypothesis tries.

Invariant: without --gpu no test can touch a GPU or read the caller's XLA settings; runs are alike anywhere.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

DESELECTED = "gpu_tests_deselected"

# Dropped before any test module imports what reads them. pytest-xdist sets COLUMNS in its workers: a table
# would have another width there.
CALLERS_SETTINGS = re.compile(
    "XLA_FLAGS|JAX_ENABLE_X64|JAX_COMPILATION_CACHE_DIR|JAX_CMDBUF_.*|COLUMNS|LINES|FORCE_COLOR|NO_COLOR"
)

hypothesis.settings.register_profile("dev", deadline=None, max_examples=50)
hypothesis.settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=50,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="also run the tests that need a CUDA device")


def pytest_configure(config: pytest.Config) -> None:
    for name in filter(CALLERS_SETTINGS.fullmatch, list(os.environ)):
        del os.environ[name]
    if not config.getoption("--gpu"):
        os.environ["JAX_PLATFORMS"] = "cpu"
    if config.getoption("hypothesis_profile") is None:
        hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")
    config.stash[deselected_key] = 0
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(WorkerCounts(config))


deselected_key = pytest.StashKey[int]()


class WorkerCounts:
    """Carries the number of deselected tests from pytest-xdist's workers, which collect, to the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, int] | None = getattr(self.config, "workeroutput", None)
        if output is not None:
            output[DESELECTED] = self.config.stash[deselected_key]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        counted = getattr(node, "workeroutput", {}).get(DESELECTED, 0)
        # Each worker collects everything, so their counts are one number, not shares of it.
        self.config.stash[deselected_key] = max(self.config.stash[deselected_key], counted)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--gpu"):
        return
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu:
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
        config.stash[deselected_key] = len(gpu)
        config.hook.pytest_deselected(items=gpu)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash[deselected_key]:
        terminalreporter.write_line(f"{count} tests need a CUDA device and were deselected; --gpu runs them")


@pytest.fixture(autouse=True)
def unchanged_environment() -> Iterator[None]:
    """A test that leaves the environment changed fails: use monkeypatch, which undoes itself."""
    before = {name: os.environ.get(name) for name in ("XLA_FLAGS", "JAX_PLATFORMS", "CUDA_HOME", "PATH")}
    yield
    after = {name: os.environ.get(name) for name in before}
    assert after == before
