from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flags.jaxlibs import library, needs_jaxlib
from xla_flags import Catalog, FlagSpec, shipped_versions
from xla_flags.installed import installed_version
from xla_flags.kinds import FieldShape
from xla_flags.observe import Observer, printed_default, zero
from xla_flags.probe import probe

pytestmark = needs_jaxlib


@pytest.fixture(scope="module")
def observer() -> Iterator[Observer]:
    with probe() as ask:
        yield Observer(ask, library(), installed_version())


SOME = (
    "xla_cpu_enable_fast_math",
    "xla_cpu_enable_fast_min_max",
    "xla_cpu_enable_concurrency_optimized_scheduler",
    "xla_cpu_max_isa",
    "xla_cpu_opt_preset",
    "xla_cpu_use_thunk_runtime",
    "xla_disable_hlo_passes",
    "xla_dump_to",
    "xla_gpu_collective_permute_mode",
    "xla_gpu_command_buffer_update_mode",
    "xla_gpu_detect_nan",
    "xla_gpu_enable_command_buffer",
    "xla_gpu_enable_libnvptxcompiler",
    "xla_gpu_enable_nccl_clique_optimization",
    "xla_gpu_experimental_max_unroll_factor",
    "xla_gpu_graph_enable_concurrent_region",
    "xla_gpu_autotune_gemm_rtol",
)


@pytest.mark.parametrize("name", SOME)
def test_a_flag_is_seen_as_it_is_shipped(observer: Observer, name: str) -> None:
    if installed_version() not in shipped_versions():
        pytest.skip("this jaxlib's flags were not recorded")
    flag = Catalog.for_jaxlib(installed_version()).flags[name]
    _, kind, type_, default, field, *extra = observer.flag_row(name)
    assert (kind, type_, default, field) == (
        flag.kind,
        flag.type,
        flag.default,
        flag.field.name if flag.field else "",
    )
    seen = extra[0] if extra else {}
    assert (seen.get("words", {}), seen.get("prefix", ""), seen.get("minimum")) == (
        flag.words,
        flag.prefix,
        flag.minimum,
    )


def test_which_flags_exist(observer: Observer) -> None:
    assert observer.exists("xla_dump_to")
    assert observer.exists("xla_fuel")
    assert not observer.exists("xla_detailed_logging")
    assert not observer.exists("help")


def test_defaults_are_those_shipped(observer: Observer) -> None:
    if installed_version() not in shipped_versions():
        pytest.skip("this jaxlib's flags were not recorded")
    fields = Catalog.for_jaxlib(installed_version()).fields
    assert observer.defaults == {name: field.default for name, field in fields.items()}


def test_zero() -> None:
    assert zero(FieldShape("message", True, True)) == {}
    assert zero(FieldShape("message", False, False)) == {}
    assert zero(FieldShape("string", True, False)) == []
    assert zero(FieldShape("enum", False, False, "xla.E", ("A", "B"))) == "A"
    assert zero(FieldShape("bool", False, False)) is False
    assert zero(FieldShape("int64", False, False)) == 0


def test_defaults_as_xla_prints_them() -> None:
    def flag(name: str) -> FlagSpec:
        return Catalog.for_jaxlib("0.12.0.1").flags[name]

    assert printed_default(flag("xla_cpu_ftz"), True) == "true"
    assert printed_default(flag("xla_gpu_autotune_gemm_rtol"), 0.10000000149011612) == "0.1"
    assert printed_default(flag("xla_gpu_enable_command_buffer"), ["A", "B"]) == "A, B"
    assert printed_default(flag("xla_gpu_all_gather_mode"), "COLLECTIVES_PEER_MEMORY") == "peer"
    assert printed_default(flag("xla_gpu_graph_enable_concurrent_region"), "LHS") == "false"
    assert printed_default(flag("xla_backend_extra_options"), {}) == ""
    assert printed_default(flag("xla_gpu_autotune_level"), 4) == "4"
