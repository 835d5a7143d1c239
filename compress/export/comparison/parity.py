"""Compares the outputs of an exported or quantized model with those of the model it was made from.

The rows compared are golden inputs, which show a wrong graph at once and rounding well enough, and in a run also rows
of train. What quantization costs the task is decided by the gate, on the task's own rows.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError
from compress.export.build_context import Batches
from compress.model_folder.model_info import TaskInfo
from compress.runtime.predictor import Predictor, is_per_token
from compress.tasks import KINDS
from compress.tasks.base import Arrays

TOLERANCE = 1e-4
"""The largest difference that fp32 rounding explains, of outputs up to 1; above, the share of the largest one."""

MARGIN = 0.02
"""Where the reference's logits are closer than this it has no decision that could be compared."""

SPANS = ("start_logits", "end_logits")


@dataclass(frozen=True)
class Parity:
    """The differences between two models' outputs on some rows, by the names that compress.json has for them."""

    max_abs_difference: float
    """Largest absolute difference of an output; NaN where one is not a number."""
    agreement: float | None
    """Share of the clear decisions that are the same; None without decisions (numbers, embeddings, scores)."""
    alone_or_in_batch: float
    """Largest difference of a row's outputs between being alone and sharing a batch."""
    rows: int
    largest_output: float = 0.0
    """Largest absolute output of the reference."""
    decisions: int = 0
    """The number of clear decisions; not stored."""

    def is_within(self, tolerance: float) -> bool:
        """Whether outputs differ by less than ``tolerance``, or that share of the largest one; NaN never does."""
        return self.max_abs_difference < tolerance * max(1.0, self.largest_output)

    def record(self) -> dict[str, float]:
        """Return the values that compress.json stores."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "decisions"}
        return {name: float(value) for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        """`outputs within 2.1e-07, 100% same decisions on 19 rows`."""
        same = "" if self.agreement is None else f", {self.agreement:.0%} same decisions"
        return f"outputs within {self.max_abs_difference:.2g}{same} on {self.rows} rows"


def compare_all(
    reference: Predictor, other: Predictor, batches: Mapping[int, Batches], task: TaskInfo | None
) -> Parity:
    """Compare two models on the same rows at every batch size; returns the worst values."""
    return _same_rows([compare(reference, other, together, task) for together in batches.values()])


def compare_stored(inputs: Arrays, outputs: Arrays, other: Predictor, task: TaskInfo | None) -> Parity:
    """Compare a model with the stored outputs of a padded batch: each row alone, and all together; the worst values."""
    alone = rows_alone(inputs, outputs)
    return _same_rows([compare_outputs(batches, other, task) for batches in (alone, [(inputs, outputs)])])


def compare_groups(
    reference: Predictor, other: Predictor, groups: Mapping[str, Mapping[int, Batches]], task: TaskInfo | None
) -> dict[str, Parity]:
    """Compare two models on each group of rows at every batch size."""
    return {name: compare_all(reference, other, batches, task) for name, batches in groups.items()}


def total(groups: Collection[Parity]) -> Parity:
    """Return the worst differences of several groups of rows, and their share of equal decisions together."""
    rows, decisions = (sum(getattr(parity, name) for parity in groups) for name in ("rows", "decisions"))
    same = sum(parity.agreement * parity.decisions for parity in groups if parity.agreement is not None)
    return _worst(groups, same / decisions if decisions else None, rows, decisions)


def _same_rows(results: Collection[Parity]) -> Parity:
    """Return the worst differences and decisions of several comparisons of the same rows."""
    agreement = min((parity.agreement for parity in results if parity.agreement is not None), default=None)
    rows, decisions = (max(getattr(parity, name) for parity in results) for name in ("rows", "decisions"))
    return _worst(results, agreement, rows, decisions)


def _worst(results: Collection[Parity], agreement: float | None, rows: int, decisions: int) -> Parity:
    """Return the largest values of ``results``, and the given ones; unlike max, NaN if one is NaN."""
    names = ("max_abs_difference", "alone_or_in_batch", "largest_output")
    difference, alone, output = (float(np.max([getattr(parity, name) for parity in results])) for name in names)
    return Parity(difference, agreement, alone, rows, output, decisions)


def compare(reference: Predictor, other: Predictor, batches: Sequence[Arrays], task: TaskInfo | None) -> Parity:
    """Run both models on every batch, and ``other`` also on each row alone."""
    return compare_outputs(((batch, reference.predict(batch)) for batch in batches), other, task)


def compare_outputs(batches: Iterable[tuple[Arrays, Arrays]], other: Predictor, task: TaskInfo | None) -> Parity:
    """Run ``other`` on batches whose expected outputs are known, and on each row alone."""
    largest, alone, rows, magnitude = 0.0, 0.0, 0, 0.0
    same = np.empty(0, dtype=bool)
    for batch, expected in batches:
        got = other.predict(batch)
        _check_outputs(expected, got)
        largest = np.maximum(largest, _largest_difference(expected, got, batch["attention_mask"]))
        same = np.append(same, decisions_agree(expected, got, batch["attention_mask"], task))
        alone = np.maximum(alone, _batch_effect(other, batch, got))
        rows += len(batch["input_ids"])
        read = (without_padding(name, values, batch["attention_mask"]) for name, values in expected.items())
        magnitude = max(magnitude, *(float(np.abs(values).max(initial=0.0)) for values in read))
    agreement = float(same.mean()) if len(same) else None
    return Parity(float(largest), agreement, float(alone), rows, magnitude, len(same))


def _check_outputs(expected: Arrays, got: Arrays) -> None:
    """Refuse outputs of other names or shapes, which could not be compared."""
    if expected.keys() != got.keys():
        raise ModelError(f"expected the outputs {', '.join(expected)}; got {', '.join(got)}.")
    for name, values in expected.items():
        if values.shape != got[name].shape:
            raise ModelError(f"expected {name} of the shape {values.shape}; got {got[name].shape}.")


def decisions_agree(expected: Arrays, got: Arrays, mask: NDArray[np.int64], task: TaskInfo | None) -> NDArray[np.bool_]:
    """For every clear decision of the reference, whether the other model makes the same; empty without decisions.

    A row has one decision, or one for each label, each token, or each end of the answer. Numbers, embeddings, and the
    scores of choices and candidates are no decisions.
    """
    if set(SPANS) <= expected.keys():
        ends = [[np.where(mask == 1, outputs[name], -np.inf) for outputs in (expected, got)] for name in SPANS]
        return np.concatenate([_same_argmax(*pair) for pair in ends])
    distribution = KINDS[task.kind].outputs.distribution if task else "softmax"
    if "logits" not in expected or distribution is None:
        return np.empty(0, dtype=bool)
    ours, theirs = (without_padding("logits", outputs["logits"], mask) for outputs in (expected, got))
    if task is not None and task.labels:  # windows append their weight after the labels
        ours, theirs = ours[..., : len(task.labels)], theirs[..., : len(task.labels)]
    if distribution == "sigmoid":
        return np.asarray(((ours > 0) == (theirs > 0))[np.abs(ours) > MARGIN])
    return _same_argmax(ours, theirs)


def _same_argmax(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether the highest score of the last axis has the same index, where the reference has a clear one."""
    highest = np.sort(ours, axis=-1)[..., -2:]
    clear = highest[..., -1] - highest[..., 0] > MARGIN
    return np.asarray((ours.argmax(-1) == theirs.argmax(-1))[clear])


def without_padding(name: str, values: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return an output without its values at padding."""
    return values[mask == 1] if is_per_token(name, values) else values


def _largest_difference(expected: Arrays, got: Arrays, mask: NDArray[np.int64]) -> float:
    """Return the largest difference of any output, without padding."""
    pairs = [(without_padding(name, expected[name], mask), without_padding(name, got[name], mask)) for name in expected]
    return float(np.max([np.max(np.abs(ours - theirs)) for ours, theirs in pairs]))


def _batch_effect(predictor: Predictor, batch: Arrays, together: Arrays) -> float:
    """Return how much a row's outputs change when it runs alone and without padding."""
    if len(batch["input_ids"]) == 1:
        return 0.0
    largest = 0.0
    for row, shared in rows_alone(batch, together):
        largest = np.maximum(largest, _largest_difference(shared, predictor.predict(row), row["attention_mask"]))
    return float(largest)


def rows_alone(batch: Arrays, outputs: Arrays) -> Iterator[tuple[Arrays, Arrays]]:
    """Yield the arrays of each row of a padded batch without its padding, and its outputs."""
    for index, length in enumerate(batch["attention_mask"].sum(axis=1)):
        row = {name: array[index : index + 1, :length] for name, array in batch.items() if array.ndim == 2}
        yield (
            row,
            {
                name: values[index : index + 1, :length] if is_per_token(name, values) else values[index : index + 1]
                for name, values in outputs.items()
            },
        )
