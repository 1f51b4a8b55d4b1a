"""What things cost on one kind of machine: microseconds of host time, measured, by name.

Invariant: a calibration has every name of ``MEASURED`` and says which GPU, driver and jaxlib it is of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jax_cmdbuf.errors import InputError

__all__ = ["MEASURED", "Calibration", "load_calibration", "shipped_calibration"]

_VERSION = 1
_DATA = Path(__file__).parent / "data"

# Name -> what was measured; microseconds of host time per item unless it says otherwise.
MEASURED: Mapping[str, str] = MappingProxyType(
    {
        "cuMemAddressReserve": "reserving 2 MiB of addresses",
        "cuMemAddressFree": "giving them back",
        "cuMemCreate": "creating 2 MiB of physical memory",
        "cuMemRelease": "releasing it",
        "cuMemMap": "mapping it",
        "cuMemSetAccess": "making one mapping accessible",
        "cuMemSetAccess.batched": "making one of 16 neighbouring mappings accessible in one call",
        "cuMemUnmap": "unmapping one mapping",
        "cuMemUnmap.batched": "unmapping one of 16 neighbouring mappings in one call",
        "cuStreamWriteValue64": "a write to the timeline",
        "update.kernel": "giving a kernel node of an executable graph new parameters",
        "update.memcpy": "the same for a copy node",
        "update.memset": "the same for a memset node",
        "update.nested": "the same for a nested graph of one node",
        "launch": "launching a graph of one node",
        "launch.node": "each further node of it",
        "instantiate": "instantiating a graph of one node",
        "instantiate.node": "each further node of it",
        "copy.d2d": "enqueuing a copy on the device",
        "copy.h2d": "enqueuing a copy of 4 KiB from pageable host memory",
        "copy.d2d.gibibyte": "copying 1 GiB on the device (time of the device)",
        "dispatch.call": "calling a jitted function of one argument and one result",
        "dispatch.argument": "each further argument of it",
        "dispatch.result": "each further result of it",
        "native.update": "XLA: updating one command of a command buffer",
        "native.remap": "XLA: moving one persistent buffer to its reserved address",
    }
)


@dataclass(frozen=True)
class Calibration:
    """Costs of one kind of machine.

    Attributes:
      gpu: model, for example "NVIDIA H200".
      driver: version of the CUDA driver, for example "13.0".
      jaxlib: version of the jaxlib that was measured.
      microseconds: the costs, by the names of ``MEASURED``.
    """

    gpu: str
    driver: str
    jaxlib: str
    microseconds: Mapping[str, float]

    def __post_init__(self) -> None:
        """Checks that it is complete.

        Raises:
          InputError: a cost is missing, unknown, or not a time.
        """
        for name in MEASURED:
            if name not in self.microseconds:
                raise InputError(
                    f"the calibration of {self.gpu} lacks {name}; run jax-cmdbuf calibrate again"
                )
        for name, value in self.microseconds.items():
            if name not in MEASURED or not math.isfinite(value) or value < 0:
                raise InputError(f"the calibration of {self.gpu} says {name} costs {value}")

    def __getitem__(self, name: str) -> float:
        return self.microseconds[name]

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "version": _VERSION,
            "gpu": self.gpu,
            "driver": self.driver,
            "jaxlib": self.jaxlib,
            "microseconds": {name: round(self.microseconds[name], 4) for name in MEASURED},
        }


def load_calibration(path: str | PathLike[str]) -> Calibration:
    """Reads a calibration that ``jax-cmdbuf calibrate`` wrote.

    Raises:
      InputError: the file cannot be read or is something else.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if data["version"] != _VERSION:
            raise InputError(
                f"{path} is a calibration of version {data['version']}, this release reads {_VERSION}"
            )
        costs = {str(name): float(value) for name, value in data["microseconds"].items()}
        return Calibration(str(data["gpu"]), str(data["driver"]), str(data["jaxlib"]), costs)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no calibration ({type(error).__name__}: {error})") from error


def shipped_calibration(gpu: str = "h200") -> Calibration:
    """A calibration that comes with this package.

    Raises:
      InputError: there is none for that GPU.
    """
    path = _DATA / f"calibration_{gpu}.json"
    if not path.exists():
        known = ", ".join(
            sorted(each.stem.removeprefix("calibration_") for each in _DATA.glob("calibration_*.json"))
        )
        raise InputError(f"no calibration of {gpu} comes with this package (there is: {known or 'none'})")
    return load_calibration(path)
