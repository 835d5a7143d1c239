"""The interface of all runtimes: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from compress.environment import describe_cpu
from compress.environment.os_probe import command_output
from compress.errors import ModelError
from compress.model_info import VariantInfo
from compress.tasks.base import Arrays


@dataclass(frozen=True)
class Placement:
    """The device and the number of threads of a predictor."""

    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1


ONE_THREAD = Placement()
"""One CPU thread: the default placement."""


class Predictor(Protocol):
    """A loaded model; several threads may call it at once."""

    inputs: tuple[str, ...]

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch; extra arrays (labels) are ignored, outputs come as float32 numpy arrays by name."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return its configuration, as `describe_predictor` does."""
        ...


@runtime_checkable
class TimedOnDevice(Protocol):
    """A predictor that can read the clock of a CUDA device."""

    def device_milliseconds(self, arrays: Mapping[str, NDArray[Any]]) -> float:
        """Return the device's time for one forward pass, without copies to and from the host."""
        ...


def describe_predictor(
    variant: VariantInfo, placement: Placement, *, version: str, options: Mapping[str, Any], uses: str | None = None
) -> dict[str, Any]:
    """Return the configuration of a predictor, as results of measurements store it.

    Args:
        variant: what it runs.
        placement: where it runs.
        version: the library's.
        options: settings of the library.
        uses: what the library reports that it uses of the device; None where it reports nothing.
    """
    cpu = describe_cpu()
    return {
        "runtime": variant.runtime,
        "version": version,
        "device": placement.device,
        "device_name": cpu.model if placement.device == "cpu" else _cuda_name(),
        "threads": placement.threads,
        "instructions": cpu.instructions,
        "precision": variant.precision,
        "session": dict(variant.session),
        "options": dict(options),
        "uses": uses,
    }


def _cuda_name() -> str | None:
    """Return the name of the CUDA device, without torch; None where the driver reports none or devices differ."""
    names = set(command_output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines())
    return names.pop() if len(names) == 1 else None


def check_inputs(inputs: tuple[str, ...], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse a batch that lacks an input of the model."""
    missing = [name for name in inputs if name not in arrays]
    if missing:
        raise ModelError(f"the model takes {', '.join(inputs)}; {', '.join(missing)} was not given.")


def answers(names: Sequence[str]) -> list[str]:
    """Return the outputs that are read here: the tokens' states beside a text's embedding are for other tools."""
    return [name for name in names if name != "last_hidden_state" or "sentence_embedding" not in names]


def cast_inputs(types: Mapping[str, str | np.dtype[Any] | None], arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return the model's inputs in the types that it takes; None leaves an array as it is."""
    check_inputs(tuple(types), arrays)
    return {name: np.ascontiguousarray(arrays[name], dtype=kind) for name, kind in types.items()}
