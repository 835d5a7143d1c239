"""The interface of all runtimes: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from numpy.typing import NDArray

from compress.errors import ModelError
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
        """Describe the configuration; every runtime reports at least these fields.

        `runtime`, `version`, `device`, `device_name`, `threads`, `precision`, `session` (the settings it was opened
        with), `instructions` (the processor's instruction sets that affect speed, None where unknown) and `uses` (what
        the runtime reports that it uses of the device, None where it reports nothing).
        """
        ...


@runtime_checkable
class TimedOnDevice(Protocol):
    """A predictor whose device measures time itself."""

    def device_milliseconds(self, arrays: Mapping[str, NDArray[Any]]) -> float:
        """Return the device's time for one forward pass, without copies to and from the host."""
        ...


def check_inputs(inputs: tuple[str, ...], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse a batch that lacks an input of the model."""
    missing = [name for name in inputs if name not in arrays]
    if missing:
        raise ModelError(f"the model takes {', '.join(inputs)}; {', '.join(missing)} was not given.")
