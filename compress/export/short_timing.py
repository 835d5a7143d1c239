"""Short timings of a few calls in turn: enough to choose between files and options, not to report a latency."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from compress.runtime import open_predictor
from compress.runtime.predictor import Placement
from compress.tasks.base import Arrays

ROUNDS = 50
SECONDS = 3.0
"""Calls are timed for `ROUNDS` rounds, or as many as fit into `SECONDS` (three at least)."""


def time_folders(folders: Sequence[Path], row: Arrays, threads: int) -> list[float]:
    """Return the median seconds that each exported folder takes for ``row`` on the CPU; they take turns."""
    opened = [open_predictor(folder, Placement("cpu", threads)) for folder in folders]
    return median_times([partial(predictor.predict, row) for predictor in opened])


def median_times(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median seconds of each call; they take turns after a first call of each."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    start = time.perf_counter()
    while len(times[0]) < 3 or (len(times[0]) < ROUNDS and time.perf_counter() - start < SECONDS):
        for call, taken in zip(calls, times, strict=True):
            begin = time.perf_counter()
            call()
            taken.append(time.perf_counter() - begin)
    return [statistics.median(taken) for taken in times]


def median_row(batches: Sequence[Arrays]) -> Arrays:
    """Return the row of median length, without padding."""
    rows = [(int(mask.sum()), batch, index) for batch in batches for index, mask in enumerate(batch["attention_mask"])]
    length, batch, index = sorted(rows, key=lambda row: row[0])[len(rows) // 2]
    return {name: array[index : index + 1, :length].copy() for name, array in batch.items() if array.ndim == 2}
