from __future__ import annotations

import pytest

from xla_flags import CatalogError, ProcessWouldEndError, UnknownJaxlibError, XlaFlagsError


@pytest.mark.parametrize("error", [CatalogError, ProcessWouldEndError, UnknownJaxlibError])
def test_one_except_catches_all(error: type[Exception]) -> None:
    assert issubclass(error, XlaFlagsError)
    assert issubclass(UnknownJaxlibError, LookupError)
    assert issubclass(CatalogError, ValueError)
