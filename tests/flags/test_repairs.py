from __future__ import annotations

import pytest

from xla_flags import Catalog, FlagKind, parse
from xla_flags.repairs import REPAIRERS, of_bool, of_int
from xla_flags.repairs_lists import LIST_REPAIRERS
from xla_flags.schema import BOOL_KINDS
from xla_flags.spelling import flag_text

NEW = Catalog.for_jaxlib("0.12.0.1")


def test_every_kind_that_refuses_has_a_repairer() -> None:
    accept_all = {
        *(FlagKind.STRING, FlagKind.UPPER_STRING, FlagKind.MAP, FlagKind.ANNOTATION_REGEXES),
        *(FlagKind.COMMA_LIST, FlagKind.TRIMMED_LIST, FlagKind.BLANK_LIST, FlagKind.WHOLE_LIST),
    }
    assert {*REPAIRERS, *LIST_REPAIRERS, *BOOL_KINDS} == {*FlagKind} - accept_all


@pytest.mark.parametrize(
    "value", ["", "x", "1e9999999", "9" * 50, "0x" + "f" * 100, "é", "+-1", "none", "1GiB"]
)
def test_guesses_end_with_a_reason(value: str) -> None:
    for name, flag in NEW.flags.items():
        repairer = REPAIRERS.get(flag.kind) or (of_bool if flag.kind in BOOL_KINDS else None)
        if repairer is None or parse(flag_text(name, value), NEW).ok:
            continue
        repairs = list(repairer(flag, value))
        assert repairs
        assert all(each.code and each.why for each in repairs)


def test_sizes_with_units() -> None:
    flag = NEW.flags["xla_gpu_autotune_max_solutions"]
    assert "2048" in [each.value for each in of_int(flag, "2KiB")]
