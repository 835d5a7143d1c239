"""The quantized files of one model: what each lost on select, and screening: which are worth scoring and timing.

The loss is against the unquantized model; where layers returned to fp32 for it, they are named.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from compress import format_numbers as fmt
from compress.measure.quality.bootstrap_scorer import BootstrapScorer, Predictions
from compress.measure.result_base import ResultModel
from compress.select.gate import UNQUANTIZED, format_change, loss_against
from compress.select.ledger import Outcome, Rules
from compress.storage.stored_info import up_to


class QuantizationLoss(ResultModel):
    """The score of a quantized file on select, judged as the gate judges it."""

    outcome: Outcome
    score: float
    drop: float
    """Against its own unquantized model; below zero: a gain."""
    error: float
    """Standard error of the drop."""
    allowed: float
    larger_is_better: bool = True

    @property
    def text(self) -> str:
        """`lost 1.2 points on select against its own unquantized model, 0.5 points allowed`."""
        change = format_change(self.drop, self.larger_is_better)
        allowed = fmt.points(self.allowed, self.larger_is_better)
        doubt = ""
        if self.outcome == "missed" and self.drop <= self.allowed:
            doubt = "; the gate is strict, and a larger loss is not excluded"
        elif self.outcome == "undecided" and self.drop > self.allowed:
            doubt = "; the rows cannot tell whether it is more"
        return f"{change} on select against {UNQUANTIZED}, {allowed} allowed{doubt}"


class Fallback(ResultModel):
    """The loss of a quantized file, and what returning layers to fp32 changed where it was too large."""

    loss: QuantizationLoss
    """With every layer quantized."""
    fp32_layers: tuple[str, ...] = ()
    """Those that stay in fp32 in the file that is used; empty where none had to, or none helped."""
    loss_with_fp32: QuantizationLoss | None = None
    """Of the file with these layers in fp32; None without any."""
    slowdown: float | None = None
    """Its time for one row, over that of the file with every layer quantized, in a short timing."""
    tried: int = 0
    """Files with layers in fp32 that were built and scored."""
    reason: str | None = None
    """Why it misses what is allowed although layers could return to fp32."""

    @property
    def final(self) -> QuantizationLoss:
        """The loss of the file that is used."""
        return self.loss_with_fp32 or self.loss


def quantization_loss(
    scorer: BootstrapScorer, answers: Predictions, unquantized: Predictions, gold: Predictions, rules: Rules
) -> QuantizationLoss:
    """Judge the predictions of a quantized file on the rows of select."""
    allowed = rules.quantize_max_drop
    assert allowed is not None  # a recipe that quantizes has it
    loss = loss_against(UNQUANTIZED, scorer.difference(answers, unquantized, gold), allowed)
    return QuantizationLoss(
        outcome=loss.outcome(rules.strict),
        score=scorer.primary(answers, gold).value,
        drop=loss.drop,
        error=loss.error,
        allowed=allowed,
        larger_is_better=scorer.metric.larger_is_better,
    )


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
