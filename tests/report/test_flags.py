from __future__ import annotations

import dataclasses

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.report.flags import changed_flags, missing_update_modes
from xla_flags.schema import Catalog, shipped_versions

NEWEST = shipped_versions()[-1]


def with_options(executable: Executable, **options: object) -> Executable:
    return dataclasses.replace(executable, debug_options=options)


def test_defaults_are_not_listed(executable: Executable) -> None:
    defaults = {name: field.default for name, field in Catalog.for_jaxlib(NEWEST).fields.items()}
    assert changed_flags(with_options(executable, **defaults), jaxlib=NEWEST) == {}


def test_what_differs_is_listed_by_name(executable: Executable) -> None:
    program = with_options(
        executable,
        xla_gpu_graph_min_graph_size=1,
        xla_gpu_enable_command_buffer=("FUSION",),
        xla_gpu_command_buffer_update_mode="SKIP_TEMP",
        xla_dump_to="/somewhere",
        xla_gpu_cuda_data_dir="/toolkit",
        a_field_nobody_knows=1,
    )
    assert list(changed_flags(program, jaxlib=NEWEST, hidden=frozenset({"xla_dump_to"})).items()) == [
        ("xla_gpu_command_buffer_update_mode", "SKIP_TEMP"),
        ("xla_gpu_enable_command_buffer", ("FUSION",)),
        ("xla_gpu_graph_min_graph_size", 1),
    ]
    assert "xla_dump_to" in changed_flags(program, jaxlib=NEWEST)


def test_the_order_of_an_enum_list_is_no_difference(executable: Executable) -> None:
    default = Catalog.for_jaxlib(NEWEST).fields["xla_gpu_enable_command_buffer"].default
    program = with_options(executable, xla_gpu_enable_command_buffer=tuple(reversed(default)))
    assert changed_flags(program, jaxlib=NEWEST) == {}


def test_modes_that_a_release_does_not_have() -> None:
    assert missing_update_modes("0.10.2") == ("SKIP_TEMP", "SKIP_PROFILED")
    assert missing_update_modes("0.11") == ()
    assert missing_update_modes(NEWEST) == ()
    assert missing_update_modes(None) == ()


def test_a_release_is_found_by_its_beginning_and_an_unknown_one_lists_nothing(executable: Executable) -> None:
    program = with_options(executable, xla_gpu_graph_min_graph_size=1)
    assert changed_flags(dataclasses.replace(program, jaxlib="0.11")) == {"xla_gpu_graph_min_graph_size": 1}
    assert changed_flags(dataclasses.replace(program, jaxlib="0.1")) == {}
    assert changed_flags(dataclasses.replace(program, jaxlib=None)) == {}
