"""A model that is ready to be served: its files are as published, its golden outputs are repeated, it is warm.

How long batches take is measured then, on this machine: whether requests are joined follows from it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress import format_numbers as fmt
from compress.errors import ModelError
from compress.export.comparison.golden_inputs import SENTENCE, golden_inputs
from compress.export.comparison.parity_check import check_golden
from compress.model_folder.cascade_info import model_folders
from compress.model_folder.model_info import GOLDEN_FILE, VariantInfo, read_info
from compress.publish.verify import DIGESTS_FILE, find_damage
from compress.runtime.predictor import Placement
from compress.runtime.text_model import TextModel

BATCHES = (1, 2, 4, 8, 16, 32)
LENGTHS = (8, 32, 128, 512)
ROUNDS = 3
JOINED_SHARE = 0.95
"""Of the time that rows take one after another, what they take together at most: measurements are that exact."""
SLOW = 0.25
"""Seconds after which larger batches are not measured: nothing that takes so long is joined."""


class BatchTimes:
    """Seconds of batches by their number of examples and their length, between the measured ones by interpolation."""

    def __init__(self, batches: Sequence[int], lengths: Sequence[int], seconds: NDArray[np.float64]) -> None:
        """``seconds`` are measured (batches, lengths)."""
        self.largest = batches[-1]
        by_length = [np.interp(np.arange(lengths[-1] + 1), lengths, line) for line in seconds]
        counts = np.arange(self.largest + 1)
        self._table: list[list[float]] = [
            np.interp(counts, batches, each).tolist() for each in zip(*by_length, strict=True)
        ]

    def __call__(self, examples: int, tokens: int) -> float:
        """Return the seconds that a batch takes."""
        line = self._table[min(tokens, len(self._table) - 1)]
        return line[min(examples, self.largest)] * max(1.0, examples / self.largest)

    def batch(self, sizes: Sequence[tuple[int, int]]) -> list[int]:
        """Return the indices of rows to run together: the first, and those of similar length that make it cheaper.

        Args:
            sizes: examples and tokens of each row, in the order in which they came.
        """
        first = sizes[0][1]
        order = sorted(range(len(sizes)), key=lambda index: abs(sizes[index][1] - first))
        best, least = 1, JOINED_SHARE
        examples, tokens, alone = 0, 0, 0.0
        for count, index in enumerate(order, 1):
            examples, tokens = examples + sizes[index][0], max(tokens, sizes[index][1])
            alone += self(*sizes[index])
            if count > 1 and examples > self.largest:
                break
            share = self(examples, tokens) / alone
            if count > 1 and share <= least:
                best, least = count, share
        return order[:best]


def measure_times(model: TextModel) -> BatchTimes:
    """Measure batches of this model, each a few times; the least counts."""
    longest = model.task.max_length
    # A table is faster with padding alone than with a text.
    pieces = model.tokens(SENTENCE, None, longest).input_ids
    lengths = (*(length for length in LENGTHS if length < longest), longest)
    lines = []
    for batch in BATCHES:
        line = []
        for length in lengths:
            example = {"input_ids": np.resize(pieces, length).tolist(), "token_type_ids": [0] * length}
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
            many = self.times.largest
            one, each = (fmt.milliseconds(1e3 * self.times(count, 32) / count) for count in (1, many))
            why = f"{one} for one text of 32 tokens, {each} each in a batch of {many}"
        return f"{self.name}: {file}, {self.model.task.kind}; {why}"


def open_served(name: str, folder: Path, placement: Placement) -> ServedModel:
    """Open a model and check that it is what it says; a ModelError or ParityMissed where it is not."""
    info = read_info(folder)
    if (folder / DIGESTS_FILE).is_file() and (damage := find_damage(folder)):
        raise ModelError(f"{folder} is not as it was published: {damage}.", hint=f"compress verify {folder}")
    for part in model_folders(folder):
        if (part / GOLDEN_FILE).is_file():
            check_golden(part).raise_for_misses(part)
    model = TextModel.open(folder, placement)
    model.predict(golden_inputs(model.task)["sentences"][:1])
    return ServedModel(name, folder, model, info.variant, None if model.depends_on_batch else measure_times(model))
