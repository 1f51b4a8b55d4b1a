from types import SimpleNamespace

import pytest

from jax_cmdbuf.errors import MissingDependencyError, StatusCode
from jax_cmdbuf.stream_executor import cuda_driver
from jax_cmdbuf.stream_executor.memory import DriverError

RESULT = cuda_driver.driver.CUresult


def fake(monkeypatch: pytest.MonkeyPatch, **functions: object) -> None:
    explain = lambda status: (RESULT.CUDA_SUCCESS, b"out of memory")  # noqa: E731
    driver = SimpleNamespace(CUresult=RESULT, cuGetErrorString=explain, **functions)
    monkeypatch.setattr(cuda_driver, "driver", driver)


def test_results_come_as_none_one_or_a_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    ok = RESULT.CUDA_SUCCESS
    fake(monkeypatch, none=lambda: (ok,), one=lambda: (ok, 7), two=lambda: (ok, 7, 8))
    assert cuda_driver.call("none") is None
    assert cuda_driver.call("one") == 7
    assert cuda_driver.call("two") == (7, 8)


def test_a_refused_call_names_function_error_and_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, cuMemCreate=lambda: (RESULT.CUDA_ERROR_OUT_OF_MEMORY, None))
    with pytest.raises(DriverError, match="cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY: out of memory") as caught:
        cuda_driver.call("cuMemCreate")
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


def test_no_driver_on_the_machine_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(flags: int) -> None:
        raise RuntimeError("libcuda not found")

    fake(monkeypatch, cuInit=missing)
    with pytest.raises(MissingDependencyError, match="no usable CUDA driver"):
        cuda_driver.call("cuInit", 0)


@pytest.mark.gpu
def test_the_context_is_current_only_inside_the_block() -> None:
    _, context = cuda_driver.retain_primary_context(0)
    with cuda_driver.current_context(context):
        assert int(cuda_driver.call("cuCtxGetCurrent")) == int(context)
