"""Advice on every recorded value of XLA_FLAGS: an error exactly where the recorded process ended, a warning
where text was not read, and corrections that work.
"""

from __future__ import annotations

import pytest

from tests.groundtruth.test_flag_recordings import VERSIONS, lines
from xla_flags import Catalog, Severity, check_compiler_options, fixed_text, parse, render
from xla_flags.advise_options import advise_options


@pytest.mark.parametrize("version", VERSIONS)
def test_flags(version: str) -> None:
    catalog = Catalog.for_jaxlib(version)
    corrected = failed = 0
    for index, record in enumerate(lines(f"jaxlib-{version}")):
        value = None if record.get("unset") else record["xla_flags"]
        result = parse(value, catalog, files=record.get("files", {}))
        remarks = result.diagnostics
        severities = {each.severity for each in remarks}
        assert (Severity.ERROR in severities) == (record["outcome"] != "ok"), value
        if result.ignored is not None:
            assert Severity.WARNING in severities, value
        render(result, remarks).encode()
        if record["outcome"] != "ok" and index % 4 == 0:
            failed += 1
            fixed = fixed_text(result)
            if fixed is not None:
                corrected += 1
                again = parse(fixed, catalog, files={})
                assert again.ok, value
                assert again.ignored is None
    # The others are random text, or say nothing about what was meant.
    assert corrected > failed / 3


@pytest.mark.parametrize("version", VERSIONS)
def test_compiler_options(version: str) -> None:
    catalog = Catalog.for_jaxlib(version)
    for record in lines(f"compiler_options-{version}"):
        base = parse(record["xla_flags"], catalog)
        result = check_compiler_options(record["options"], catalog, base)
        remarks = advise_options(result, record["options"])
        assert bool(remarks) == (record["outcome"] != "ok"), record["options"]
