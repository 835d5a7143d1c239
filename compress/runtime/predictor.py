"""One interface over every runtime: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from numpy.typing import NDArray

from compress.errors import ModelError
from compress.tasks.base import Arrays


@dataclass(frozen=True)
class Placement:
    """Where and how wide a predictor runs."""

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
        """What it runs with; every runtime tells at least these.

        `runtime`, `version`, `device`, `device_name`, `threads`, `precision`, `session` (the settings it was opened
        with), `instructions` (what of the processor's matters for speed, None where unknown) and `uses` (what the
        runtime itself says it uses of the device, None where it does not say).
        """
        ...


@runtime_checkable
class TimedOnDevice(Protocol):
    """A predictor whose device keeps time itself."""

    def device_milliseconds(self, arrays: Mapping[str, NDArray[Any]]) -> float:
        """The device's own time for one forward pass: inputs are there already, outputs stay there."""
        ...


def check_inputs(inputs: tuple[str, ...], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse a batch that lacks what the model takes."""
    missing = [name for name in inputs if name not in arrays]
    if missing:
        raise ModelError(f"the model takes {', '.join(inputs)}; {', '.join(missing)} was not given.")
