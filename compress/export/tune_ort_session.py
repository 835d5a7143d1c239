"""Which session settings make a graph fastest here: measured, because it depends on processor and graph."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from compress.runtime.onnx_runtime import make_session
from compress.runtime.predictor import ONE_THREAD
from compress.tasks.base import Arrays

CANDIDATES: tuple[Mapping[str, Any], ...] = ({}, {"disabled_optimizers": ["SkipLayerNormFusion"]})
"""The default comes first. ONNX Runtime fuses residual additions into SkipLayerNormalization by itself, which on some
processors is slower than the two operators it replaces (10 to 30 % of a small encoder)."""

ROUNDS = 15
SECONDS = 3.0
"""A session is timed for so many rounds, or as many as fit this time (three at least)."""

WORTH = 0.98
"""Another setting than the default must take less than this share of its time."""


def choose_session(
    model: Path, batches: Sequence[Arrays], fixed: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """The fastest of `CANDIDATES` on one row of the sample's median length, on one CPU thread; ``fixed`` goes along."""
    candidates = [{**fixed, **candidate} for candidate in CANDIDATES]
    sessions = [make_session(model, ONE_THREAD, candidate) for candidate in candidates]
    names = [given.name for given in sessions[0].get_inputs()]
    row = _typical_row(batches)
    feed = {name: row[name] for name in names}
    times: list[list[float]] = [[] for _ in sessions]
    for session in sessions:
        session.run(None, feed)
    start = time.perf_counter()
    while len(times[0]) < 3 or (len(times[0]) < ROUNDS and time.perf_counter() - start < SECONDS):
        for session, taken in zip(sessions, times, strict=True):
            begin = time.perf_counter()
            session.run(None, feed)
            taken.append(time.perf_counter() - begin)
    return candidates[fastest([statistics.median(taken) for taken in times])]


def fastest(seconds: Sequence[float]) -> int:
    """The index of the least time, or 0 where it gains too little on the default."""
    best = min(range(len(seconds)), key=lambda index: seconds[index])
    return best if seconds[best] < WORTH * seconds[0] else 0


def _typical_row(batches: Sequence[Arrays]) -> Arrays:
    """The row of median length, without padding."""
    rows = [(int(mask.sum()), batch, index) for batch in batches for index, mask in enumerate(batch["attention_mask"])]
    rows.sort(key=lambda row: row[0])
    length, batch, index = rows[len(rows) // 2]
    return {
        name: np.ascontiguousarray(array[index : index + 1, :length])
        for name, array in batch.items()
        if array.ndim == 2
    }
