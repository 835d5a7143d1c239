"""What a quantized file lost on select against its own unquantized model, and which layers returned to fp32 for it."""

from __future__ import annotations

from compress import format_numbers as fmt
from compress.measure.quality.bootstrap_scorer import BootstrapScorer, Predictions
from compress.measure.result_base import ResultModel
from compress.select.gate import UNQUANTIZED, format_change, loss_against
from compress.select.ledger import Outcome, Rules


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
