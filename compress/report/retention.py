"""The share of the teacher's score that a model retains, in total and above a simple baseline.

A student with 98 % of an accuracy of 92 learned little if a bag of words reaches 90. Above the baseline it retains
(student - baseline) / (teacher - baseline). That ratio is undefined unless the teacher is significantly better than the
baseline.
"""

from dataclasses import dataclass

from compress.measure.quality.quality_result import Quality
from compress.report.report_schema import Report
from compress.select.ledger import Verdict

SIGNIFICANCE = 0.05
"""Differences with a lower p-value are significant."""


def quality_on_test(report: Report, key: str | None, title: str) -> Quality | None:
    """Return the test scores of a row on a target."""
    result = report.result(key, title)
    return result.test if result else None


def larger_is_better(report: Report, title: str | None = None) -> bool:
    """Return the direction of the primary metric; by any score of the report, or of one target."""
    qualities = (result.test or result.select for result in report.results if title in (None, result.target))
    return next((quality.larger_is_better for quality in qualities if quality is not None), True)


def score_ratio(score: Quality | None, reference: Quality | None) -> float | None:
    """Return one score over another; None for errors, and where the metric may be negative."""
    if score is None or reference is None or not score.larger_is_better or reference.primary.value <= 0:
        return None
    return score.primary.value / reference.primary.value


def ratio_above_baseline(report: Report, score: Quality | None, reference: Quality | None, title: str) -> float | None:
    """Return the same ratio of what exceeds the baseline; None unless the teacher is better than the baseline."""
    if score is None or reference is None or report.floor is None or not teacher_beats_baseline(report, title):
        return None
    sign = 1.0 if score.larger_is_better else -1.0
    above = [sign * (quality.primary.value - report.floor.primary.value) for quality in (score, reference)]
    return above[0] / above[1] if above[1] > 0 else None


def winner_above_baseline(report: Report, verdict: Verdict) -> float | None:
    """Return the winner's ratio to the teacher above the baseline."""
    winner, teacher = (quality_on_test(report, key, verdict.target) for key in (verdict.winner, report.teacher))
    return ratio_above_baseline(report, winner, teacher, verdict.target)


def teacher_beats_baseline(report: Report, title: str) -> bool | None:
    """Whether the teacher is significantly better than the baseline; None if one of them was not scored."""
    teacher, baseline = quality_on_test(report, report.teacher, title), report.floor
    if teacher is None or baseline is None:
        return None
    if baseline.versus_teacher is not None:
        return baseline.versus_teacher.value < 0 and baseline.versus_teacher.p_value < SIGNIFICANCE
    return is_clearly_better(teacher, baseline)  # in reports from before the paired test


@dataclass(frozen=True)
class GainOverProbe:
    """What fine-tuning gained over what it started from, on test."""

    value: float
    """Of the primary score; negative for a loss."""
    p_value: float
    seconds: float | None
    """Time of the teacher's step."""

    @property
    def is_significant(self) -> bool:
        """Whether test can tell the teacher from its probe."""
        return self.p_value < SIGNIFICANCE


def gain_over_probe(report: Report) -> GainOverProbe | None:
    """Return the gain of fine-tuning; None where there was no probe, or one of both was not scored."""
    versus, teacher = report.probe and report.probe.versus_teacher, report.row(report.teacher)
    if not versus or teacher is None:
        return None
    seconds = next((step.seconds for step in report.steps if step.name == teacher.step), None)
    return GainOverProbe(-versus.value, versus.p_value, seconds)


def is_clearly_better(quality: Quality, baseline: Quality) -> bool:
    """Whether a score is better than the baseline's and their intervals do not overlap."""
    if quality.larger_is_better:
        return quality.primary.low > baseline.primary.high
    return quality.primary.high < baseline.primary.low
