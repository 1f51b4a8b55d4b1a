from __future__ import annotations

import pytest

from xla_flags import Catalog, history_of, parse
from xla_flags.migrations import RENAMED_MEMBERS, RULES, migrate

NEW = Catalog.for_jaxlib("0.12.0.1")


def value_for(name: str) -> str:
    return {"xla_gpu_asm_extra_flags": "-v", "xla_gpu_cuda_graph_capture_threshold": "3"}.get(name, "1")


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_migration_leads_somewhere(name: str) -> None:
    history = history_of(name)
    assert history is not None, "a flag that no release on record knows needs no migration"
    assert not history.current
    migration = migrate(name, value_for(name))
    assert migration is not None
    assert migration.text is not None
    assert parse(migration.text, NEW).ok


def test_rules_are_in_the_order_of_names() -> None:
    assert list(RULES) == sorted(RULES)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("xla_gpu_graph_level", "0", "--xla_gpu_enable_command_buffer="),
        ("xla_gpu_graph_level", "3", "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUDNN"),
        ("xla_gpu_graph_level", "x", None),
        ("xla_gpu_enable_async_collectives", "true", ""),
        ("xla_gpu_enable_async_collectives", "0", "--xla_gpu_disable_async_collectives=ALLCOLLECTIVES"),
        ("xla_gpu_enable_async_all_to_all", "false", "--xla_gpu_disable_async_collectives=ALLTOALL"),
        ("xla_gpu_enable_triton_softmax_fusion", "false", None),
        ("xla_gpu_enable_pipelined_collectives", "true", "--xla_gpu_enable_pipelined_all_reduce=true "
            "--xla_gpu_enable_pipelined_all_gather=true --xla_gpu_enable_pipelined_reduce_scatter=true"),
        ("xla_gpu_asm_extra_flags", "-a,-b", "--xla_gpu_ptx_compiler_extra_flags='-a -b'"),
    ],
)  # fmt: skip
def test_migrations_heed_the_value(name: str, value: str, text: str | None) -> None:
    migration = migrate(name, value)
    assert migration is not None
    assert migration.text == text
    assert text is None or parse(text, NEW).ok


def test_flags_that_are_there_have_none() -> None:
    assert not [name for name in NEW.flags if migrate(name, "true") is not None]


def test_update_modes_keep_their_numbers() -> None:
    old = Catalog.for_jaxlib("0.10.2").flags["xla_gpu_command_buffer_update_mode"].enum
    new = NEW.flags["xla_gpu_command_buffer_update_mode"].enum
    assert old is not None
    assert new is not None
    for before in ("NEVER_UPDATE", "CAPTURE_CMD_NEVER_UPDATE"):
        (after,) = RENAMED_MEMBERS[before]
        assert old.numbers[before] == new.numbers[after]
        assert RENAMED_MEMBERS[after] == (before,)
