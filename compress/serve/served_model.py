"""A model that is ready to be served: its files are as published, its golden outputs are repeated, it is warm.

How long batches take is measured then, on this machine: whether requests are joined follows from it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError
from compress.export.comparison.golden_inputs import golden_inputs
from compress.export.comparison.parity_check import check_golden
from compress.model_folder.model_info import GOLDEN_FILE, VariantInfo, read_info
from compress.publish.verify import DIGESTS_FILE, find_damage
from compress.runtime.predictor import Placement
from compress.runtime.text_model import TextModel

BATCHES = (1, 2, 4, 8, 16, 32)
LENGTHS = (8, 32, 128, 512)
ROUNDS = 3
SLOW = 0.25
"""Seconds after which larger batches are not measured: nothing that takes so long is joined."""


@dataclass(frozen=True)
class BatchTimes:
    """Seconds by the number of examples and their length, between which times are interpolated."""

    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    seconds: NDArray[np.float64]
    """(batches, lengths)."""

    def __call__(self, examples: int, tokens: int) -> float:
        """Return the seconds that a batch takes."""
        by_batch = [float(np.interp(tokens, self.lengths, line)) for line in self.seconds]
        beyond = max(1.0, examples / self.batches[-1])
        return float(np.interp(examples, self.batches, by_batch)) * beyond

    def best_count(self, sizes: Sequence[tuple[int, int]]) -> int:
        """Return how many of the first rows to run together: as many as answer the most rows a second.

        Args:
            sizes: examples and tokens of each row, in the order in which they came.
        """
        best, least = 1, float("inf")
        examples = tokens = 0
        for count, (more, length) in enumerate(sizes, 1):
            examples, tokens = examples + more, max(tokens, length)
            if examples > self.batches[-1] and count > 1:
                break
            each = self(examples, tokens) / count
            if each <= least:
                best, least = count, each
        return best


def measure_times(model: TextModel) -> BatchTimes:
    """Measure batches of this model, each a few times; the least counts."""
    longest = model.task.max_length
    lengths = (*(length for length in LENGTHS if length < longest), longest)
    lines = []
    for batch in BATCHES:
        line = []
        for length in lengths:
            example = {"input_ids": [model.tokens.pad_id] * length, "token_type_ids": [0] * length}
            arrays = model.arrays([example] * batch)
            line.append(min(_timed(model, arrays) for _ in range(ROUNDS)))
        lines.append(line)
        if line[-1] > SLOW:
            break
    return BatchTimes(BATCHES[: len(lines)], lengths, np.array(lines))


def _timed(model: TextModel, arrays: dict[str, NDArray[np.generic]]) -> float:
    start = time.perf_counter()
    model.predictor.predict(arrays)
    return time.perf_counter() - start


@dataclass(frozen=True)
class ServedModel:
    """A model under its name."""

    name: str
    folder: Path
    model: TextModel
    variant: VariantInfo | None
    times: BatchTimes | None
    """None where answers depend on the batch: rows run as they were scored, one by one."""

    def describe(self) -> str:
        """Return the line that is shown when it is ready."""
        file = self.variant.name if self.variant else "a model folder"
        if self.times is None:
            why = "its answers depend on the batch: rows run one by one; fp32 or static INT8 may be faster"
        else:
            many = self.times.batches[-1]
            one, each = 1e3 * self.times(1, 32), 1e3 * self.times(many, 32) / many
            why = f"{one:.2f} ms for one text of 32 tokens, {each:.2f} ms each in a batch of {many}"
        return f"{self.name}: {file}, {self.model.task.kind}; {why}"


def open_served(name: str, folder: Path, placement: Placement) -> ServedModel:
    """Open a model and check that it is what it says; a ModelError or ParityMissed where it is not."""
    info = read_info(folder)
    if (folder / DIGESTS_FILE).is_file() and (damage := find_damage(folder)):
        raise ModelError(f"{folder} is not as it was published: {damage}.", hint=f"compress verify {folder}")
    if (folder / GOLDEN_FILE).is_file():
        check_golden(folder).raise_for_misses(folder)
    model = TextModel.open(folder, placement)
    model.predict(golden_inputs(model.task)["sentences"][:1])
    return ServedModel(name, folder, model, info.variant, None if model.depends_on_batch else measure_times(model))
