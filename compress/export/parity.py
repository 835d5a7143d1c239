"""Does an exported or quantized model still give the answers of the model it was made from?

The sample may be the task's own rows. Without any it is made up: random pieces in odd shapes, which show a wrong graph
at once, and rounding well enough; what quantization costs the task is the gate's business, on the task's rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError
from compress.folder import TaskInfo
from compress.runtime.predictor import Predictor
from compress.tasks import KINDS
from compress.tasks.kind import Arrays

SHAPES = ((1, 3), (2, 9), (3, 17), (8, 33), (5, 64))
"""(rows, length) of the made-up batches: none is the shape that the exporter traced, one is as short as texts get."""

TOLERANCE = 1e-4
"""The largest difference of an output that fp32 rounding explains."""

MARGIN = 0.02
"""A row whose logits are closer than this has no decision that could be kept."""


@dataclass(frozen=True)
class Parity:
    """How far two models are apart on a sample."""

    largest: float
    """Largest absolute difference of an output; NaN where one is not a number."""
    agreement: float | None
    """Share of the decided rows with the same decision; None where there are none (regression)."""
    alone: float
    """Largest difference of a row's outputs between being alone and sharing a batch."""
    rows: int

    def record(self) -> dict[str, float]:
        """As compress.json keeps it."""
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


def compare(reference: Predictor, other: Predictor, batches: Sequence[Arrays], task: TaskInfo | None) -> Parity:
    """Run both on every batch, and ``other`` also on each row of the batches alone."""
    largest, alone, rows = 0.0, 0.0, 0
    kept: list[NDArray[np.bool_]] = []
    for batch in batches:
        expected, got = reference.predict(batch), other.predict(batch)
        if expected.keys() != got.keys():
            raise ModelError(f"expected the outputs {', '.join(expected)}; got {', '.join(got)}.")
        largest = max_nan(largest, *(_distance(expected[name], got[name]) for name in expected))
        kept += [_same_decisions(expected["logits"], got["logits"], task)] if "logits" in expected else []
        alone = max_nan(alone, _batch_effect(other, batch, got))
        rows += len(batch["input_ids"])
    decisions = np.concatenate(kept) if kept else np.empty(0, dtype=bool)
    return Parity(largest, float(decisions.mean()) if len(decisions) else None, alone, rows)


def made_up_sample(folder: Path, task: TaskInfo | None, seed: int = 0) -> list[Arrays]:
    """Batches of random pieces that fit the model whose config.json stands in ``folder``."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    pad = int(config.get("pad_token_id") or 0)
    # RoBERTa counts positions from behind the padding piece, which costs that many of them.
    room = int(config.get("max_position_embeddings", 512)) - pad - 1
    longest = min(room, task.max_length if task else room)
    generator = np.random.default_rng(seed)
    return [_made_up(generator, rows, min(length, longest), int(config["vocab_size"]), pad) for rows, length in SHAPES]


def _made_up(generator: np.random.Generator, rows: int, length: int, vocabulary: int, pad: int) -> Arrays:
    """One batch, whose rows have different lengths."""
    ids = generator.integers(0, vocabulary - 1, (rows, length))
    ids += ids >= pad  # every piece but the padding
    lengths = np.linspace(length, max(1, length // 3), rows).astype(int)
    mask = np.arange(length) < lengths[:, None]
    return {
        "input_ids": np.where(mask, ids, pad).astype(np.int64),
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": np.zeros((rows, length), dtype=np.int64),
    }


def max_nan(*values: float) -> float:
    """The largest, or NaN when one is NaN (``max`` would lose it)."""
    return float(np.max(values))


def _distance(expected: NDArray[np.float32], got: NDArray[np.float32]) -> float:
    return float(np.max(np.abs(expected - got)))


def _same_decisions(
    expected: NDArray[np.float32], got: NDArray[np.float32], task: TaskInfo | None
) -> NDArray[np.bool_]:
    """For every decision that the reference is clear about, whether it is kept."""
    problem = KINDS[task.kind].problem if task else "single_label_classification"
    if problem == "multi_label_classification":
        clear = np.abs(expected) > MARGIN
        return np.asarray(((expected > 0) == (got > 0))[clear])
    if problem != "single_label_classification" or expected.shape[-1] < 2:
        return np.empty(0, dtype=bool)
    ordered = np.sort(expected, axis=-1)
    clear = ordered[..., -1] - ordered[..., -2] > MARGIN
    return np.asarray((expected.argmax(-1) == got.argmax(-1))[clear])


def _batch_effect(predictor: Predictor, batch: Arrays, together: Arrays) -> float:
    """How much a row's logits move when it runs without company and padding."""
    if "logits" not in together or len(batch["input_ids"]) == 1:
        return 0.0
    largest = 0.0
    for index, length in enumerate(batch["attention_mask"].sum(axis=1)):
        row = {name: array[index : index + 1, :length] for name, array in batch.items() if array.ndim == 2}
        logits = predictor.predict(row)["logits"]
        largest = max_nan(largest, _distance(together["logits"][index : index + 1], logits))
    return largest
