"""What `compress bench` leaves: every figure of every session, ready for JSON, and readable again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import SerializationInfo, SerializerFunctionWrapHandler, field_serializer

from compress.measure.interference.machine_snapshot import MachineSnapshot
from compress.measure.resources.footprint import Footprint
from compress.measure.result_base import ResultModel, Score
from compress.measure.roofline.roofline import LimitShares, MachineLimits
from compress.measure.timing.latency import Latency
from compress.recipe.measure_schema import Measure

UNUSED = ("grid", "memory", "robustness")
"""Settings that a bench has no use for: its own grid stands in its sessions."""


class BenchModel(ResultModel):
    """One model of a bench."""

    name: str
    """As it was typed; a model that was typed twice is told apart by a number."""
    variant: str | None = None
    """How it was asked to run; None: the plainest way for what it is."""
    footprint: Footprint | None = None
    """None where it is not there, or holds no weights that are known."""


class TimedModel(ResultModel):
    """One model in one session."""

    latency: Latency
    ratio: Score | None = None
    """How many times faster than the base of the bench; None where one of them has no figure."""
    shares: LimitShares | None = None
    """Of the machine's own limits; None where those are not known, or the model was not timed."""


class Comparison(ResultModel):
    """All models at one place, batch and length, timed in turns."""

    title: str
    device: Literal["cpu", "cuda"]
    threads: int
    batch: int
    length: int | Literal["data"]
    """Word pieces of every input, or the lengths of the texts that were given."""
    models: Mapping[str, TimedModel]
    seconds: float
    """What the whole session took."""

    @property
    def timed(self) -> bool:
        """Whether any model has a figure here."""
        return any(one.latency.timed for one in self.models.values())


class Bench(ResultModel):
    """Everything that one bench found out."""

    schema_version: Literal[1] = 1
    what: Literal["bench"] = "bench"
    created: str
    made_by: str
    against: str
    """The model that ratios are to."""
    models: tuple[BenchModel, ...]
    settings: Measure
    texts: int | None = None
    """How many texts gave the lengths; None where all lengths were fixed."""
    surroundings: MachineSnapshot | None = None
    limits: tuple[MachineLimits, ...] = ()
    """Of this machine, where they have been measured before."""
    targets: tuple[Comparison, ...] = ()
    grid: tuple[Comparison, ...] = ()
    """Batches and lengths that were asked for beside the targets' own; one that is a target's own stands in both."""

    @field_serializer("settings", mode="wrap")
    def _used(self, settings: Measure, write: SerializerFunctionWrapHandler, _: SerializationInfo) -> dict[str, Any]:
        """Without what belongs to runs alone."""
        return {name: value for name, value in write(settings).items() if name not in UNUSED}

    @property
    def timed(self) -> bool:
        """Whether anything could be timed at all."""
        return any(session.timed for session in (*self.targets, *self.grid))
