"""Screening: which of several quantized files of one model are worth scoring on test and timing.

The first method's file always is. Another one must lose no more than allowed, and be faster in a short timing, smaller
or better: else it could win only by chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from compress.measure.result_base import ResultModel
from compress.select.quantization_loss import QuantizationLoss
from compress.storage.schema_version import up_to

SCREENING_FILE = "screening.json"

FASTER = 0.97
"""Share of the first file's time below which another is faster: a short timing is not more precise than that."""
SMALLER = 0.9
"""Share of the first file's bytes below which another is worth its while."""


class ScreenedFile(ResultModel):
    """One quantized file of a model."""

    variant: str
    loss: QuantizationLoss
    milliseconds: float
    """For one row of median length, in a short timing."""
    bytes_total: int


class Screening(ResultModel):
    """The content of screening.json."""

    schema_version: Annotated[int, up_to(1)] = 1
    files: tuple[ScreenedFile, ...] = ()
    """Those that were built."""
    reasons: Mapping[str, str] = {}
    """By variant that is not worth scoring and timing, why."""


def screen(first: ScreenedFile | None, others: tuple[ScreenedFile, ...]) -> Screening:
    """Compare every other file with the first method's; None where that could not be built."""
    reasons = {other.variant: reason for other in others if (reason := reason_against(other, first))}
    return Screening(files=(*([first] if first else []), *others), reasons=reasons)


def reason_against(other: ScreenedFile, first: ScreenedFile | None) -> str | None:
    """Return why a file is not worth scoring and timing beside ``first``; None where it is."""
    if other.loss.outcome == "missed":
        return f"it {other.loss.text}"
    if first is None or first.loss.outcome == "missed":
        return None
    time = other.milliseconds / first.milliseconds
    better = other.loss.drop < first.loss.drop - first.loss.error
    if time < FASTER or other.bytes_total < SMALLER * first.bytes_total or better:
        return None
    return (
        f"in a short timing it takes {time:.2f} times as long as {first.variant}, and it is neither a tenth smaller"
        " nor better on select"
    )


def read_screening(folder: Path) -> Screening:
    """Read screening.json from ``folder``."""
    return Screening.model_validate_json((folder / SCREENING_FILE).read_bytes())
