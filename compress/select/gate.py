"""The gate: whether a variant lost too much quality to be used, and whether the rows can tell.

It is evaluated on the select rows, so that test stays unseen until the end. A candidate may lose ``max_drop`` against
the teacher, a quantized one also ``quantize.max_drop`` against its own unquantized model, and with ``max_class_drop``
so much recall of each class. Each loss is *passed* or *missed* where it is at least one standard error of the paired
difference away from what is allowed, and *undecided* between; the worst of them counts. Where right answers are
counted, a loss passes only if one of just what is allowed would lose so few rows no more often than that: resampling
shows no error where no row was lost. The loss against the own unquantized model is a second rule: a candidate that
passed against the teacher is held back by it only where it is missed. With ``strict`` the whole 95 % interval must be
within, and everything else is missed.

Among many variants some seem better than they are. With more than `MANY` different ones, errors and intervals are
widened so that the chance that any of them is misjudged is no larger than with `MANY` (Bonferroni's correction).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import NormalDist

from compress import format_numbers as fmt
from compress.data.splits.split_indices import DISAGREEMENT
from compress.measure.quality.quality_result import ROUNDING, TWO_SIDED, Changed, ClassScore, Difference, Quality
from compress.select.ledger import GateResult, Outcome, Rules

CLASS_ROWS = 50
"""Rows from which a class's recall is stable enough to gate."""
MANY = 10
"""Variants with different scores up to which nothing is corrected."""
MULTIPLES = tuple(1.05**number for number in range(95))
"""How many times the select rows are tried, to find how many would tell where few rows were lost."""
MOST_ROWS = 100
"""How many times the select rows are still worth naming as what would decide."""
SEVERITY: tuple[Outcome, ...] = ("passed", "undecided", "missed")
ONE_ERROR, OUTSIDE = NormalDist().cdf(-1.0), 0.025
"""The chance to be one standard error below what is expected, and to be below a 95 % interval."""
UNQUANTIZED = "its own unquantized model"
"""What a quantized candidate is compared with beside the teacher."""


@dataclass(frozen=True)
class QualityLoss:
    """One loss of a candidate, and the allowed one."""

    where: str
    """`against the teacher`, `of recall on 'good'`."""
    drop: float
    """Below zero: a gain."""
    allowed: float
    error: float
    """Standard error of the drop."""
    highest: float
    """The end of its 95 % interval."""
    above: float
    """What is added to the drop where it has to be within: the standard error, or more where few rows were lost."""
    changed: Changed | None = None
    """The rows that were lost and won, where right answers are counted."""
    second_rule: bool = False
    """Whether it matters only where it is missed, once all other losses passed."""

    @property
    def excess(self) -> float:
        """What it exceeds the allowance by; below zero within it."""
        return self.drop - self.allowed

    def outcome(self, strict: bool) -> Outcome:
        """Whether the loss is within the allowance."""
        if strict:
            return "passed" if self.highest <= self.allowed + ROUNDING else "missed"
        if self.excess + self.above <= ROUNDING:
            return "passed"
        return "missed" if self.excess >= self.error - ROUNDING else "undecided"

    def widened(self, factor: float) -> QualityLoss:
        """Return it with a standard error and an interval that are ``factor`` times as wide."""
        error, highest = factor * self.error, self.drop + factor * (self.highest - self.drop)
        above, normal = factor * self.above, NormalDist()
        if self.changed:
            above = max(error, self.changed.most_lost(normal.cdf(-factor)) - self.drop)
            highest = max(highest, self.changed.most_lost(normal.cdf(-TWO_SIDED * factor)))
        return replace(self, error=error, above=above, highest=highest)

    def more_rows(self, rows: int) -> int | None:
        """How many rows beside ``rows`` would make the standard error as small as the excess; None if too many."""
        if self.changed and self.error <= -self.excess:  # few rows were lost: it is their number that has to grow
            times = next(
                (each for each in MULTIPLES if self.changed.most_lost_of(each, ONE_ERROR) <= self.allowed), None
            )
            return round_rows((times - 1) * rows) if times else None
        factor = (self.error / max(abs(self.excess), ROUNDING)) ** 2 - 1
        return round_rows(factor * rows) if factor <= MOST_ROWS else None


def gate(
    rules: Rules,
    select: Quality | None,
    teacher_classes: Mapping[str, ClassScore],
    *,
    quantized: bool,
    compared: int = 1,
) -> GateResult:
    """Return whether scores on the select rows pass, as those of one of ``compared`` different variants."""
    failed = GateResult(outcome="missed", drop=None, allowed=rules.max_drop)
    if select is None:
        return failed.model_copy(update={"reasons": ("it was not scored on select",)})
    baselines = {"the teacher": (select.versus_teacher, rules.max_drop)}
    if quantized and rules.quantize_max_drop is not None:
        baselines[UNQUANTIZED] = (select.versus_unquantized, rules.quantize_max_drop)
    absent = tuple(
        f"it was not compared with {name}" for name, (difference, _) in baselines.items() if difference is None
    )
    losses = [
        loss_against(name, difference, allowed) for name, (difference, allowed) in baselines.items() if difference
    ]
    drop = losses[0].drop if select.versus_teacher else None
    if absent:
        return failed.model_copy(update={"reasons": absent, "drop": drop})
    if rules.max_class_drop is not None:
        losses += _class_losses(select, teacher_classes, rules.max_class_drop)
    losses = [loss.widened(correction(compared, strict=rules.strict)) for loss in losses]
    outcomes = _outcomes(losses, rules.strict)
    more_rows = [loss.more_rows(select.rows) for loss, outcome in outcomes.items() if outcome == "undecided"]
    return GateResult(
        outcome=max(outcomes.values(), key=SEVERITY.index),
        drop=drop,
        allowed=rules.max_drop,
        excess=round(max(loss.excess for loss in losses), 9),
        more_rows=None if None in more_rows else max(filter(None, more_rows), default=None),
        reasons=tuple(
            _reason(loss, outcome, rules.strict, select, compared)
            for loss, outcome in outcomes.items()
            if outcome != "passed"
        ),
    )


def _outcomes(losses: Sequence[QualityLoss], strict: bool) -> dict[QualityLoss, Outcome]:
    """Return the outcome of each loss; one of the second rule that is undecided passes where all others do."""
    outcomes = {loss: loss.outcome(strict) for loss in losses}
    if all(outcome == "passed" for loss, outcome in outcomes.items() if not loss.second_rule):
        return {loss: "passed" if outcome == "undecided" else outcome for loss, outcome in outcomes.items()}
    return outcomes


def correction(compared: int, *, strict: bool) -> float:
    """Return the factor by which errors are widened: 1 for up to `MANY` variants, 1.4 for 20 (``strict``: 1.1).

    A loss of just what is allowed passes with a probability of 0.16, with ``strict`` of 0.025.
    """
    normal, wrong = NormalDist(), OUTSIDE if strict else ONE_ERROR
    return normal.inv_cdf(wrong * min(1.0, MANY / compared)) / normal.inv_cdf(wrong)


def format_change(drop: float, larger_is_better: bool) -> str:
    """A loss or a gain in words: `lost 0.3 points`."""
    amount = fmt.points(abs(drop), larger_is_better)
    return f"{'lost' if drop > 0 else 'gained'} {amount}" if drop else "lost nothing"


def format_more_rows(more_rows: int | None) -> str:
    """What would decide an undecided gate: `about 2,300 more select rows would tell`."""
    if more_rows is None:
        return "more select rows than this set could have would be needed to tell"
    return f"about {more_rows:,} more select row{'' if more_rows == 1 else 's'} would tell"


def round_rows(rows: float) -> int:
    """Round a number of rows to two digits: it is an estimate."""
    return max(1, int(float(f"{rows:.1e}")))


def loss_against(baseline: str, difference: Difference, allowed: float) -> QualityLoss:
    """Return the loss that a paired difference of scores shows."""
    drop, highest = -difference.value, -difference.low
    error = above = (difference.high - difference.low) / (2.0 * TWO_SIDED)
    if difference.changed:
        above = max(above, difference.changed.most_lost(ONE_ERROR) - drop)
        highest = max(highest, difference.changed.most_lost(OUTSIDE))
    where, changed = f"against {baseline}", difference.changed
    return QualityLoss(where, drop, allowed, error, highest, above, changed, baseline == UNQUANTIZED)


def _class_losses(select: Quality, teachers: Mapping[str, ClassScore], allowed: float) -> Iterator[QualityLoss]:
    """Losses of recall; a class's predictions are assumed to differ from the teacher's as often as all of them do."""
    agreement = select.agreement_with_teacher
    differing = DISAGREEMENT if agreement is None else 1.0 - agreement
    for label, teacher in teachers.items():
        if teacher.rows >= CLASS_ROWS and label in select.per_class:
            drop = teacher.recall - select.per_class[label].recall
            error = sqrt((max(differing, abs(drop)) - drop**2) / teacher.rows)
            yield QualityLoss(f"of recall on '{label}'", drop, allowed, error, drop + TWO_SIDED * error, error)


def _reason(loss: QualityLoss, outcome: Outcome, strict: bool, select: Quality, compared: int) -> str:
    larger, corrected = select.larger_is_better, f", corrected for {compared} variants" if compared > MANY else ""
    change = f"may have lost {fmt.points(loss.highest, larger)} (95 % interval{corrected})" if strict else ""
    text = f"{change or format_change(loss.drop, larger)} {loss.where}, {fmt.points(loss.allowed, larger)} allowed"
    return f"{text}: {format_more_rows(loss.more_rows(select.rows))}" if outcome == "undecided" else text
