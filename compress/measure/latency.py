"""How fast models answer: every one in a fresh process of its own, all of them taking turns.

Jobs that share a place, a batch and a length form a session. Each job is a resident worker process; a round gives every
worker one turn over the same inputs, in an order that is shuffled anew, so that a machine that slows down slows all of
them and ratios hold. Quantiles are over all calls; their intervals resample whole rounds, since the calls of one round
share its disturbances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from compress.folder import VariantInfo
from compress.measure.facts import Facts, Score
from compress.measure.significance import Interval, percentile_interval, resamples
from compress.runtime.predictor import Place

QUANTILES = {"p50": (0.50, 1), "p95": (0.95, 20), "p99": (0.99, 100)}
"""Each with the calls below which it would rest on less than one of them."""


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


Round = NDArray[np.float64]
"""Milliseconds of the calls of one round."""


def timing(rounds: Sequence[Round], count: int = 1000, seed: int = 0) -> Timing:
    """Quantiles over all calls, with intervals from ``count`` resamples of the rounds."""
    calls = sum(map(len, rounds))
    medians = np.array([np.median(one) for one in rounds])
    shares = {name: share for name, (share, least) in QUANTILES.items() if calls >= least}
    everything = np.quantile(np.concatenate(rounds), list(shares.values()))
    drawn = np.array(
        [
            np.quantile(np.concatenate([rounds[index] for index in chosen]), list(shares.values()))
            for chosen in resamples(len(rounds), count, seed)
        ]
    )
    quantiles = {
        name: _score(percentile_interval(float(everything[place]), drawn[:, place]))
        for place, name in enumerate(shares)
    }
    return Timing(
        p50=quantiles["p50"],
        p95=quantiles.get("p95"),
        p99=quantiles.get("p99"),
        spread=spread(medians),
        calls=calls,
        round_medians=tuple(float(median) for median in medians),
    )


def spread(medians: Round) -> float:
    """The interquartile range of the rounds' medians over their median."""
    low, middle, high = np.quantile(medians, [0.25, 0.5, 0.75])
    return float((high - low) / middle)


def ratio(slower: Latency, faster: Latency, count: int = 1000, seed: int = 0) -> Score | None:
    """How many times faster ``faster`` is: the median over rounds of the ratio within a round, with its interval.

    None where one of them has no figure, or where they do not come from one session (other numbers of rounds).
    """
    if slower.model is None or faster.model is None:
        return None
    above, below = np.array(slower.model.round_medians), np.array(faster.model.round_medians)
    if len(above) != len(below):
        return None
    ratios = above / below
    drawn = np.median(ratios[np.stack(list(resamples(len(ratios), count, seed)))], axis=1)
    return _score(percentile_interval(float(np.median(ratios)), drawn))


def _score(interval: Interval) -> Score:
    return Score(value=interval.value, low=interval.low, high=interval.high)
