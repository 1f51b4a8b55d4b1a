"""HLO or StableHLO text -> executable, in the worker process.

Invariant: the program is compiled as XLA would compile it coming from JAX; its partition and replica counts
  are
its own unless the request overrides them. HLO goes to the plugin as it is (``compile_pjrt``): optimized
HLO, as XLA dumps it, keeps its fusions and its schedule.
"""

from __future__ import annotations

import math
import re
from typing import Any

from jax_cmdbuf._jax import compile_stablehlo, hlo_text_to_proto, parse_mlir
from jax_cmdbuf.errors import InputError, MissingDependencyError
from jax_cmdbuf.executable.compile_devices import Compiled, topology_devices
from jax_cmdbuf.executable.compile_ffi import register_stand_ins
from jax_cmdbuf.executable.compile_log import explain, one_line
from jax_cmdbuf.executable.compile_pjrt import compile_hlo
from jax_cmdbuf.executable.toolchain import cuda_plugin_directory

__all__ = ["argument_paths", "compile_module", "result_paths"]

_SCHEDULED = "the HLO was optimized already: it was compiled as it is, with its own fusions and schedule"


def compile_module(
    text: str, name: str, target_text: str, devices: int | None, options: dict[str, str]
) -> Compiled:
    """Compiles module text.

    Args:
      text: HLO text (``HloModule ...``), optimized or not, or MLIR text of a StableHLO module.
      name: how errors name it.
      target_text: the target's text proto.
      devices: number of GPUs; None: what the module says.
      options: XLA options of this compilation.

    Raises:
      InputError: the text cannot be parsed.
      CompileError, MissingDependencyError: XLA refused the program.
    """
    if devices is not None and devices < 1:
        raise InputError(f"--devices must be at least 1, not {devices}")
    register_stand_ins()
    if text.lstrip().startswith("HloModule"):
        return _compile_hlo(text, name, target_text, devices, options)
    return _compile_mlir(text, name, target_text, devices, options)


def _compile_hlo(
    text: str, name: str, target_text: str, devices: int | None, options: dict[str, str]
) -> Compiled:
    try:
        module = hlo_text_to_proto(text)
    except Exception as error:  # jaxlib's errors have no common base between releases
        raise InputError(f"{name} is not HLO text that jaxlib can read: {one_line(str(error))}") from error
    header = text.lstrip().split("\n", 1)[0]
    replicas = _number(r"\breplica_count=(\d+)", header)
    partitions = _number(r"\bnum_partitions=(\d+)", header)
    if partitions == 1:
        partitions = _mesh_size(header)
    replicas, partitions = _shape(replicas, partitions, devices)
    plugin = cuda_plugin_directory()
    if plugin is None:
        raise MissingDependencyError("the CUDA compiler plugin of JAX is not installed")
    compile_options = _compile_options(replicas, partitions, options, shardy="xla.sdy." in text)
    try:
        serialized = compile_hlo(
            module,
            compile_options.SerializeAsString(),
            plugin=plugin / "xla_cuda_plugin.so",
            target_text=target_text,
            devices=replicas * partitions,
        )
    except Exception as error:  # jaxlib's errors have no common base between releases
        raise explain(str(error)) from error
    return Compiled(serialized, notes=(_SCHEDULED,) if "is_scheduled=true" in header else ())


def _compile_mlir(
    text: str, name: str, target_text: str, devices: int | None, options: dict[str, str]
) -> Compiled:
    try:
        module = parse_mlir(text)
    except Exception as error:  # jaxlib's errors have no common base between releases
        raise InputError(f"{name} is not MLIR text that jaxlib can read: {one_line(str(error))}") from error
    replicas, partitions = _shape(
        _attribute(module, "mhlo.num_replicas"), _attribute(module, "mhlo.num_partitions"), devices
    )
    gpus = topology_devices(target_text, replicas * partitions)
    arguments, results = argument_paths(module), result_paths(module)
    # XLA dies over a module with GSPMD's shardings that is given to Shardy.
    compile_options = _compile_options(replicas, partitions, options, shardy="sdy." in text)
    try:
        return Compiled(compile_stablehlo(module, gpus, compile_options).serialize(), arguments, results)
    except Exception as error:  # jaxlib's errors have no common base between releases
        raise explain(str(error)) from error


def _shape(replicas: int, partitions: int, devices: int | None) -> tuple[int, int]:
    """(replicas, partitions): the module's own unless the request asks for another number of devices."""
    return (replicas, partitions) if devices in (None, replicas * partitions) else (1, devices or 1)


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match.group(1)) if match else 1


def _attribute(module: Any, name: str) -> int:
    attributes = module.operation.attributes
    return int(attributes[name].value) if name in attributes else 1


def _mesh_size(text: str) -> int:
    """Devices of the largest Shardy mesh: HLO text that JAX prints has no other trace of their number."""
    meshes = re.findall(r"#sdy\.mesh<\[([^\]]*)\]", text)
    return max((math.prod(map(int, re.findall(r"=(\d+)", mesh))) for mesh in meshes), default=1)


def _compile_options(replicas: int, partitions: int, options: dict[str, str], *, shardy: bool) -> Any:
    import numpy as np
    from jax.extend import backend

    compile_options = backend.get_compile_options(
        num_replicas=replicas,
        num_partitions=partitions,
        device_assignment=np.arange(replicas * partitions).reshape(replicas, partitions),
        env_options_overrides=options,
    )
    compile_options.executable_build_options.use_shardy_partitioner = shardy
    return compile_options


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
    attributes = list(main.attributes["res_attrs"])
    infos = [each["jax.result_info"].value for each in attributes if "jax.result_info" in each]
    return (
        tuple("out" + info.removeprefix("result") for info in infos) if len(infos) == len(attributes) else ()
    )


def _main(module: Any) -> Any:
    for operation in module.body.operations:
        if "sym_name" in operation.attributes and operation.attributes["sym_name"].value == "main":
            return operation
    raise InputError("the module has no function named main")


def _location_name(location: str) -> str | None:
    match = re.match(r'loc\("((?:[^"\\]|\\.)*)"(?:\(|\))', location)
    # A bare location is a name; one with a line and a column is a place in a file.
    return re.sub(r"\\(.)", r"\1", match.group(1)) if match else None
