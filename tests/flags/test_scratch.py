from __future__ import annotations

from xla_flags.schema import Catalog
from xla_flags.scratch import Scratch


def test_defaults_are_copied_before_they_are_changed() -> None:
    catalog = Catalog.for_jaxlib("0.12.0.1")
    name, options = "xla_gpu_enable_command_buffer", "xla_gpu_analytical_latency_estimator_options"
    before = [*catalog.fields[name].default], {**catalog.fields[options].default}
    scratch = Scratch(catalog)
    scratch.list_of(name).append("WHILE")
    scratch.dict_of(options)["a"] = "b"
    assert scratch.list_of(name)[-1] == "WHILE"
    assert scratch.plain.keys() == {name, options}
    assert (catalog.fields[name].default, catalog.fields[options].default) == before
