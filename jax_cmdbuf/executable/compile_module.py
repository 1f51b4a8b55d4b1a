"""HLO or StableHLO text -> executable, in the worker process.

Invariant: the program is compiled as XLA would compile it coming from JAX; its partition and replica counts
  are its own
unless the request overrides them.
"""

from __future__ import annotations

import math
import re
from typing import Any

from jax_cmdbuf._jax import compile_stablehlo, hlo_text_to_stablehlo, parse_mlir
from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.compile_devices import Compiled, topology_devices
from jax_cmdbuf.executable.compile_log import explain, one_line

__all__ = ["argument_paths", "compile_module", "result_paths"]


def compile_module(
    text: str, name: str, target_text: str, devices: int | None, options: dict[str, str]
) -> Compiled:
    """Compiles module text.

    Args:
      text: HLO text (``HloModule ...``) or MLIR text of a StableHLO module.
      name: how errors name it.
      target_text: the target's text proto.
      devices: number of GPUs; None: what the module says.
      options: XLA options of this compilation.

    Raises:
      InputError: the text cannot be parsed.
      CompileError, MissingDependencyError: XLA refused the program.
    """
    module = _parse(text, name)
    replicas, partitions = _count(module, "mhlo.num_replicas"), _count(module, "mhlo.num_partitions")
    if partitions == 1:
        partitions = _mesh_size(text)
    if devices is not None and devices != replicas * partitions:
        replicas, partitions = 1, devices
    gpus = topology_devices(target_text, replicas * partitions)
    arguments, results = argument_paths(module), result_paths(module)
    try:
        compile_options = _compile_options(replicas, partitions, options)
        # XLA dies over a module with GSPMD's shardings that is given to Shardy.
        compile_options.executable_build_options.use_shardy_partitioner = "sdy." in text
        executable = compile_stablehlo(module, gpus, compile_options)
        return Compiled(executable.serialize(), arguments, results)
    except Exception as error:  # jaxlib's errors have no common base between releases
        raise explain(str(error)) from error


def _parse(text: str, name: str) -> Any:
    is_hlo = text.lstrip().startswith("HloModule")
    if is_hlo and re.search(r"^HloModule [^\n]*\bis_scheduled=true", text.lstrip()):
        raise InputError(
            f"{name} is HLO that XLA has already optimized and scheduled; give the module before "
            "optimizations (XLA dumps it as *.before_optimizations.txt) or the serialized executable"
        )
    try:
        return parse_mlir(hlo_text_to_stablehlo(text) if is_hlo else text)
    except Exception as error:  # jaxlib's errors have no common base between releases
        kind = "HLO" if is_hlo else "MLIR"
        raise InputError(f"{name} is not {kind} text that jaxlib can read: {one_line(str(error))}") from error


def _count(module: Any, attribute: str) -> int:
    attributes = module.operation.attributes
    return int(attributes[attribute].value) if attribute in attributes else 1


def _mesh_size(text: str) -> int:
    """Devices of the largest Shardy mesh: HLO text that JAX prints has no other trace of their number."""
    meshes = re.findall(r"#sdy\.mesh<\[([^\]]*)\]", text)
    return max((math.prod(map(int, re.findall(r"=(\d+)", mesh))) for mesh in meshes), default=1)


def _compile_options(replicas: int, partitions: int, options: dict[str, str]) -> Any:
    import numpy as np
    from jax.extend import backend

    return backend.get_compile_options(
        num_replicas=replicas,
        num_partitions=partitions,
        device_assignment=np.arange(replicas * partitions).reshape(replicas, partitions),
        env_options_overrides=options,
    )


def argument_paths(module: Any) -> tuple[str, ...]:
    """The path of each argument of ``main``: JAX keeps it as the argument's location ("params['w']").

    Empty if some argument has none: half a naming would be worse than XLA's own names.
    """
    paths = [_location_name(str(argument.location)) for argument in _main(module).arguments]
    return tuple(path for path in paths if path) if all(paths) else ()


def result_paths(module: Any) -> tuple[str, ...]:
    """The path of each result of ``main``, below "out": JAX keeps it as ``jax.result_info``."""
    main = _main(module)
    if "res_attrs" not in main.attributes:
        return ()
    infos = [
        attributes["jax.result_info"].value
        for attributes in main.attributes["res_attrs"]
        if "jax.result_info" in attributes
    ]
    if len(infos) != len(main.attributes["res_attrs"]):
        return ()
    return tuple("out" + info.removeprefix("result") for info in infos)


def _main(module: Any) -> Any:
    for operation in module.body.operations:
        if "sym_name" in operation.attributes and operation.attributes["sym_name"].value == "main":
            return operation
    raise InputError("the module has no function named main")


def _location_name(location: str) -> str | None:
    match = re.match(r'loc\("((?:[^"\\]|\\.)*)"(?:\(|\))', location)
    # A bare location is a name; one with a line and a column is a place in a file.
    return re.sub(r"\\(.)", r"\1", match.group(1)) if match else None
