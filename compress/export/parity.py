"""Compares the outputs of an exported or quantized model with those of the model it was made from.

The rows compared are rows of train, or generated ones: random tokens in odd shapes, which show a wrong graph at once,
and rounding well enough. What quantization costs the task is decided by the gate, on the task's own rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError
from compress.export.build_context import Batches
from compress.export.prediction_agreement import decisions_agree, is_per_token, without_padding
from compress.model_info import TaskInfo
from compress.runtime.predictor import Predictor
from compress.tasks.base import Arrays

SHAPES = ((1, 3), (2, 9), (3, 17), (8, 33), (5, 64))
"""(rows, length) of the generated batches: none is the shape that the exporter traced, one is as short as texts get."""

TOLERANCE = 1e-4
"""The largest difference of an output that fp32 rounding explains."""


@dataclass(frozen=True)
class Parity:
    """The differences between two models' outputs on some rows."""

    largest: float
    """Largest absolute difference of an output; NaN where one is not a number."""
    agreement: float | None
    """Share of the clear decisions that are the same; None without decisions (numbers, embeddings, scores)."""
    alone: float
    """Largest difference of a row's outputs between being alone and sharing a batch."""
    rows: int

    def record(self) -> dict[str, float]:
        """Return the values that compress.json stores."""
        known = {
            "max_abs_difference": self.largest,
            "agreement": self.agreement,
            "alone_or_in_batch": self.alone,
            "rows": self.rows,
        }
        return {name: float(value) for name, value in known.items() if value is not None}

    def __str__(self) -> str:
        """`outputs within 2.1e-07, 100 % same decisions on 19 rows`."""
        same = "" if self.agreement is None else f", {self.agreement:.0%} same decisions"
        return f"outputs within {self.largest:.2g}{same} on {self.rows} rows"


def compare_all(
    reference: Predictor, other: Predictor, batches: Mapping[int, Batches], task: TaskInfo | None
) -> Parity:
    """Compare two models at every batch size; returns the worst values."""
    found = [compare(reference, other, together, task) for together in batches.values()]
    agreements = [parity.agreement for parity in found if parity.agreement is not None]
    return Parity(
        largest=max_nan(*(parity.largest for parity in found)),
        agreement=min(agreements) if agreements else None,
        alone=max_nan(*(parity.alone for parity in found)),
        rows=max(parity.rows for parity in found),
    )


def compare(reference: Predictor, other: Predictor, batches: Sequence[Arrays], task: TaskInfo | None) -> Parity:
    """Run both models on every batch, and ``other`` also on each row alone."""
    largest, alone, rows = 0.0, 0.0, 0
    agreements: list[NDArray[np.bool_]] = []
    for batch in batches:
        expected, got = reference.predict(batch), other.predict(batch)
        if expected.keys() != got.keys():
            raise ModelError(f"expected the outputs {', '.join(expected)}; got {', '.join(got)}.")
        largest = max_nan(largest, _largest_difference(expected, got, batch["attention_mask"]))
        agreements.append(decisions_agree(expected, got, batch, task))
        alone = max_nan(alone, _batch_effect(other, batch, got))
        rows += len(batch["input_ids"])
    agree = np.concatenate(agreements) if agreements else np.empty(0, dtype=bool)
    return Parity(largest, float(agree.mean()) if len(agree) else None, alone, rows)


def generated_batches(folder: Path, task: TaskInfo | None, seed: int = 0) -> dict[int, Batches]:
    """Return batches of random tokens that fit the model whose config.json is in ``folder``, under the key 0."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    pad = int(config.get("pad_token_id") or 0)
    # RoBERTa's position embeddings start after the padding index, which leaves that many fewer positions.
    positions = int(config.get("max_position_embeddings", 512)) - pad - 1
    longest = min(positions, task.max_length if task else positions)
    generator = np.random.default_rng(seed)
    shapes = ((rows, min(length, longest)) for rows, length in SHAPES)
    return {0: [_generated(generator, rows, length, int(config["vocab_size"]), pad) for rows, length in shapes]}


def _generated(generator: np.random.Generator, rows: int, length: int, vocabulary: int, pad: int) -> Arrays:
    """Return one batch, whose rows have different lengths."""
    ids = generator.integers(0, vocabulary - 1, (rows, length))
    ids += ids >= pad  # every token but the padding
    lengths = np.linspace(length, max(1, length // 3), rows).astype(int)
    mask = np.arange(length) < lengths[:, None]
    return {
        "input_ids": np.where(mask, ids, pad).astype(np.int64),
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": np.zeros((rows, length), dtype=np.int64),
    }


def max_nan(*values: float) -> float:
    """Return the largest value, or NaN if one is NaN (``max`` would lose it)."""
    return float(np.max(values))


def _largest_difference(expected: Arrays, got: Arrays, mask: NDArray[np.int64]) -> float:
    """Return the largest difference of any output, without padding."""
    pairs = [(without_padding(name, expected[name], mask), without_padding(name, got[name], mask)) for name in expected]
    return max_nan(*(float(np.max(np.abs(ours - theirs))) for ours, theirs in pairs))


def _batch_effect(predictor: Predictor, batch: Arrays, together: Arrays) -> float:
    """Return how much a row's outputs change when it runs alone and without padding."""
    if len(batch["input_ids"]) == 1:
        return 0.0
    largest = 0.0
    for index, length in enumerate(batch["attention_mask"].sum(axis=1)):
        row = {name: array[index : index + 1, :length] for name, array in batch.items() if array.ndim == 2}
        shared = {
            name: values[index : index + 1, :length] if is_per_token(name, values) else values[index : index + 1]
            for name, values in together.items()
        }
        largest = max_nan(largest, _largest_difference(shared, predictor.predict(row), row["attention_mask"]))
    return largest
