from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.conversion import command_buffer_allocations, convert
from jax_cmdbuf.executable.decode import decode_executable, decode_messages, parse_version
from jax_cmdbuf.executable.executable import DeviceDescription, Executable
from jax_cmdbuf.executable.thunks import Thunk
from jax_cmdbuf.runtime.policy import classify
from xla_flags.options import CommandBufferUpdateMode

Read = Callable[[str], Executable]
Recorded = Callable[[str], dict[str, Any]]

H200 = DeviceDescription("NVIDIA H200", (13, 0, 0), (13, 0, 0), (13, 0, 0), "the recordings")


def shape(thunks: Iterable[Thunk]) -> list[Any]:
    return [[thunk.kind, thunk.id, [shape(inner) for inner in thunk.nested if inner]] for thunk in thunks]


def recorded_shape(entries: list[Any]) -> list[Any]:
    return [
        [kind, number, [recorded_shape(inner) for inner in nested if inner]]
        for kind, number, _, nested in entries
    ]


def test_allocations_are_those_of_the_dump(grouping_case: str, read: Read, recorded: Recorded) -> None:
    executable = read(grouping_case)
    table = []
    for one in executable.allocations:
        kinds = {
            "thread-local": one.is_thread_local,
            "constant": one.is_constant,
            "preallocated-temp": one.is_preallocated_temp_buffer,
        }
        kind = next((name for name, holds in kinds.items() if holds), "")
        leaf = list(one.parameter_shape_index)
        table.append([one.size, one.color, kind, one.parameter_number, leaf, one.maybe_live_out])
    expected = recorded(grouping_case)["allocations"]
    assert table == [row[:6] for row in expected]
    names = {index: set(row[6]) for index, row in enumerate(expected) if row[6]}
    assert {index: set(uses) for index, uses in executable.hlo_uses.items()} == names
    for constant in executable.constants:
        assert executable.allocations[constant.allocation].is_constant
        assert constant.content is not None
        assert len(constant.content) == executable.allocations[constant.allocation].size
    outputs = {output.allocation for output in executable.outputs}
    assert {one.index for one in executable.allocations if one.maybe_live_out} <= outputs
    count = len(executable.parameter_names)
    assert count == len(executable.parameter_paths) == len(executable.parameter_shapes)
    assert {one.parameter_number for one in executable.allocations} - {None} <= set(range(count))


def test_thunks_release_and_device_are_those_of_the_dump(
    grouping_case: str, read: Read, recorded: Recorded, device_of: Callable[[str], Any]
) -> None:
    executable = read(grouping_case)
    assert shape(executable.thunks) == recorded_shape(recorded(grouping_case)["before"])
    series = {"v10": "0.10", "v11": "0.11"}.get(grouping_case.split("_")[0], "0.12")
    assert executable.jaxlib == series
    assert (executable.device is not None) == (series == "0.12")
    if executable.device is not None:
        expected = device_of(grouping_case)
        assert executable.device.driver_version == expected.driver_version
        assert executable.device.runtime_version == expected.runtime_version
        assert executable.device.compile_time_toolkit_version == expected.compile_time_toolkit_version
        assert executable.device.platform == "CUDA"


def test_policy_counts_are_those_xla_logged(policy_case: str, read: Read, recorded_counts: Recorded) -> None:
    executable = read(f"va_remap-{policy_case}")
    used = command_buffer_allocations(convert(executable, device=H200))
    for mode, events in recorded_counts(policy_case).items():
        found = classify(executable.allocations, used, CommandBufferUpdateMode[mode])
        counts = {
            "constants": len(found.constants),
            "persistent": len(found.persistent),
            "va_remapped": len(found.va_remapped),
            "candidates": len(found.candidates),
        }
        for event in events:
            assert event.items() <= {**counts, "kind": event["kind"]}.items(), mode


def test_update_mode_has_the_name_of_its_release(read: Read) -> None:
    option = "xla_gpu_command_buffer_update_mode"
    assert read("mlp_upd_skip_profiled").debug_options[option] == "SKIP_PROFILED"
    assert read("mlp_upd_skip_temp").debug_options[option] == "SKIP_TEMP"
    assert read("mlp_default").debug_options[option] == "ALWAYS_UPDATE"


def test_debug_options_are_plain_data(read: Read) -> None:
    options = read("mlp_default").debug_options
    assert options["xla_gpu_graph_min_graph_size"] == 5
    assert "FUSION" in options["xla_gpu_enable_command_buffer"]  # type: ignore[operator]
    plain = (bool, int, float, str, bytes, dict)
    for value in options.values():
        assert all(isinstance(one, plain) for one in (value if isinstance(value, tuple) else (value,)))


def test_argument_paths_are_kept(read: Read) -> None:
    executable = read("va_remap-scan_loop")
    assert executable.parameter_paths == ("a[0]", "a[1]")
    assert executable.parameter_shapes == ("f32[128,128]", "f32[8,128,128]")
    assert executable.result_shape == "(f32[128,128], f32[8])"


def test_partitions_are_counted(read: Read) -> None:
    executable = read("ragged_2slice")
    assert (executable.num_partitions, executable.num_replicas, executable.partition_size) == (8, 1, 4)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("12.9.0", (12, 9, 0)),
        ("12.9", (12, 9, 0)),
        ("", (0, 0, 0)),
        ("13.0.0.1", (13, 0, 0)),
        ("x.1", (0, 1, 0)),
    ],
)
def test_versions(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


def test_a_table_that_contradicts_itself_is_refused(serialized: Callable[[str], bytes]) -> None:
    from jax_cmdbuf.executable.container import read_container

    container = read_container(serialized("mlp_default"))
    message: Any = container.executable
    message.buffer_allocations.values[1].index = 7
    with pytest.raises(ContainerError, match=r"entry 1 .* index 7"):
        decode_messages(container)
    message.buffer_allocations.values[1].index = 1
    message.thunks[0].custom_kernel_thunk.args[0].slice.buffer_allocation_index = 99
    with pytest.raises(ContainerError, match="thunk 1 uses allocation 99"):
        decode_messages(container)


def test_a_compiled_function_is_read(serialized: Callable[[str], bytes], read: Read) -> None:
    runtime = SimpleNamespace(serialize=lambda: serialized("mlp_default"))
    found = Executable.from_compiled(SimpleNamespace(runtime_executable=lambda: runtime))
    assert found.thunks == read("mlp_default").thunks


def test_errors_name_their_source() -> None:
    with pytest.raises(
        ContainerError, match=r"^here\.bin is not a readable XLA:GPU executable: it is empty$"
    ):
        decode_executable(b"", source="here.bin")
