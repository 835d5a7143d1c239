"""What is kept of the teacher's score, and of the part of it that something simple does not reach.

A student that keeps 98 % of an accuracy of 92 where a bag of words has 90 has kept little of what there was to learn.
Above the floor it keeps (student - floor) / (teacher - floor). Where the teacher is not above the floor by more than
chance explains there was nothing to keep, and that ratio means nothing.
"""

from __future__ import annotations

from compress.measure.quality.quality_result import Quality
from compress.report.report_schema import Report, TargetResult

SIGNIFICANCE = 0.05
"""A difference counts where chance explains it in fewer cases than this."""


def quality_on_test(report: Report, key: str, title: str) -> Quality | None:
    """The scores of a row on test at a target."""
    row = report.row(key)
    place: TargetResult | None = row.targets.get(title) if row else None
    return place.test if place else None


def score_ratio(ours: Quality | None, theirs: Quality | None) -> float | None:
    """One score over another; None where the metric has no zero to speak of."""
    if ours is None or theirs is None or not ours.larger_is_better or theirs.primary.value <= 0:
        return None
    return ours.primary.value / theirs.primary.value


def ratio_above_baseline(report: Report, ours: Quality | None, theirs: Quality | None, title: str) -> float | None:
    """The same of what is above the floor; None where the teacher is not above it, or anything was not scored."""
    if ours is None or theirs is None or report.floor is None or not teacher_beats_baseline(report, title):
        return None
    sign = 1.0 if ours.larger_is_better else -1.0
    above = [sign * (each.primary.value - report.floor.primary.value) for each in (ours, theirs)]
    return above[0] / above[1] if above[1] > 0 else None


def teacher_beats_baseline(report: Report, title: str) -> bool | None:
    """Whether the teacher beats the floor by more than chance explains; None where one of them was not scored."""
    teacher, floor = quality_on_test(report, report.teacher, title), report.floor
    if teacher is None or floor is None:
        return None
    if floor.versus_teacher is not None:
        return floor.versus_teacher.value < 0 and floor.versus_teacher.p_value < SIGNIFICANCE
    # Reports of before the two were compared row by row: their intervals must be apart.
    if teacher.larger_is_better:
        return teacher.primary.low > floor.primary.high
    return teacher.primary.high < floor.primary.low
