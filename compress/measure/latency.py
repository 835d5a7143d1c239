"""How fast models answer: every one in a fresh process of its own, all of them taking turns.

Jobs that share a place, a batch and a length form a session. Each job is a resident worker process; a round gives every
worker one turn over the same inputs, in an order that is shuffled anew, so that a machine that slows down slows all of
them and ratios hold. Quantiles are over all calls; their intervals resample whole rounds, since the calls of one round
share its disturbances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from compress.folder import VariantInfo
from compress.measure.facts import Facts, Score
from compress.measure.significance import percentile_interval, resamples
from compress.runtime.predictor import Place


@dataclass(frozen=True)
class Job:
    """One model to time at one place; ``key`` is what the caller calls it."""

    key: str
    folder: Path
    variant: VariantInfo | None
    place: Place
    batch: int = 1
    length: int | None = None
    """Pieces of every input; None takes the lengths of the texts as they are, and times end to end too."""

    @property
    def session(self) -> tuple[Any, ...]:
        """Jobs with the same one are timed together."""
        return (self.place.device, self.place.threads, self.batch, self.length)


class Timing(Facts):
    """Milliseconds of one call with one batch of rows."""

    p50: Score
    p95: Score | None
    """None below 20 calls."""
    p99: Score | None
    """None below 100 calls."""
    spread: float
    """Interquartile range of the rounds' medians over their median: what the machine did, not the inputs."""
    calls: int
    round_medians: tuple[float, ...]


class Latency(Facts):
    """What the session found out about one job."""

    status: Literal["measured", "unstable", "failed", "not measured"]
    reason: str | None = None
    """Why the status is not `measured`."""
    model: Timing | None = None
    """From padded arrays to outputs on the host."""
    end_to_end: Timing | None = None
    """From texts to decoded answers; None at a fixed length, which no text has."""
    rows_per_second: float | None = None
    """Rows in a batch over the model's median."""
    load_seconds: float | None = None
    """From nothing loaded to a model that answers, in a fresh process; its files were read before."""
    peak_memory: int | None = None
    """Largest resident memory of the worker process, in bytes."""
    device_memory: int | None = None
    """Largest allocation on the accelerator, in bytes."""
    runs_with: Mapping[str, Any] = {}
    """Runtime, version, threads and session options, as the predictor describes itself."""

    @property
    def timed(self) -> bool:
        """Whether there is a figure, be it an unstable one."""
        return self.model is not None


