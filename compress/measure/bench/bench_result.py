"""The results of `compress bench`: every figure of every session, as JSON."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import SerializerFunctionWrapHandler, field_serializer

from compress.measure.machine_snapshot import MachineSnapshot
from compress.measure.resources.footprint import Footprint
from compress.measure.result_base import ResultModel, Score
from compress.measure.roofline.roofline import LimitShares, MachineLimits
from compress.measure.timing.latency import Latency
from compress.recipe.measure_schema import Measure

UNUSED = ("grid", "memory", "robustness")
"""Settings that a bench does not use: its grid is an option of its own."""


class BenchModel(ResultModel):
    """One model of a bench."""

    name: str
    """As on the command line; a repeated model has a number."""
    variant: str | None = None
    """The requested variant; None: the default for its format."""
    footprint: Footprint | None = None
    """None where it does not exist, or no weights are found."""


class TimedModel(ResultModel):
    """One model in one session."""

    latency: Latency
    ratio: Score | None = None
    """How many times faster than the base; None where one of them has no figure."""
    shares: LimitShares | None = None
    """Of the machine's limits; None where those are unknown, or the model was not timed."""


class Comparison(ResultModel):
    """All models on one device, at one batch and length, timed in turns."""

    title: str
    device: Literal["cpu", "cuda"]
    threads: int
    batch: int
    length: int | Literal["data"]
    """Word pieces of every input, or the lengths of the texts."""
    models: Mapping[str, TimedModel]
    seconds: float
    """Duration of the session."""

    @property
    def timed(self) -> bool:
        """Whether any model has a figure here."""
        return any(timed.latency.timed for timed in self.models.values())


class Bench(ResultModel):
    """All results of one bench."""

    schema_version: Literal[1] = 1
    what: Literal["bench"] = "bench"
    created: str
    made_by: str
    against: str
    """The model that ratios are to."""
    models: tuple[BenchModel, ...]
    settings: Measure
    texts: int | None = None
    """Number of texts that gave the lengths; None where all lengths were fixed."""
    surroundings: MachineSnapshot | None = None
    limits: tuple[MachineLimits, ...] = ()
    """Of this machine, where they have been measured."""
    targets: tuple[Comparison, ...] = ()
    grid: tuple[Comparison, ...] = ()
    """The requested batches and lengths; one that is a target's own is in both."""

    @field_serializer("settings", mode="wrap")
    def _used(self, settings: Measure, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what only runs use."""
        return {name: value for name, value in write(settings).items() if name not in UNUSED}

    @property
    def timed(self) -> bool:
        """Whether anything could be timed."""
        return any(session.timed for session in (*self.targets, *self.grid))
