"""Calibration rows: sample rows on which a static method observes the ranges of activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compress.errors import UsageError
from compress.export.build_context import BuildContext
from compress.tasks.base import Arrays

LEAST_ROWS = 2
"""Ranges of a single row say nothing about others."""


def calibration_rows(context: BuildContext) -> list[Arrays]:
    """Return the calibration rows of a build, each as a batch of its own.

    Raises:
        UsageError: there are too few.
    """
    rows = list(single_rows(context.calibration()))
    require_rows(context.variant.method, len(rows))
    return rows


def require_rows(method: str | None, count: int) -> None:
    """Refuse too few calibration rows for a method."""
    if count < LEAST_ROWS:
        raise UsageError(
            f"{method} takes its ranges from sample rows; got {count}, expected at least {LEAST_ROWS}.",
            hint="a run draws them from train; compress export reads them from --calibration FILE",
        )


def single_rows(batches: Sequence[Arrays]) -> Iterator[Arrays]:
    """Yield each row alone and without padding, which would widen the ranges."""
    for batch in batches:
        arrays = {name: array for name, array in batch.items() if array.shape == batch["input_ids"].shape}
        for index, length in enumerate(batch["attention_mask"].sum(axis=-1)):
            yield {name: array[index : index + 1, :length] for name, array in arrays.items()}
