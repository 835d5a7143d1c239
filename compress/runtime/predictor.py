"""One interface over every runtime: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from compress.tasks.kind import Arrays


@dataclass(frozen=True)
class Place:
    """Where and how wide a predictor runs."""

    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1


ONE_THREAD = Place()
"""One CPU thread: the place that is meant when none is named."""


class Predictor(Protocol):
    """A loaded model."""

    inputs: tuple[str, ...]

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch; extra arrays (labels) are ignored, outputs come as float32 numpy arrays by name."""
        ...

    def describe(self) -> dict[str, Any]:
        """What it runs with: runtime and version, threads, session options, precision, device."""
        ...
