"""What is kept of the teacher's score, and of the part of it that something simple does not reach.

A student that keeps 98 % of an accuracy of 92 where a bag of words has 90 has kept little of what there was to learn.
Above the floor it keeps (student - floor) / (teacher - floor). Where the teacher is not above the floor by more than
chance explains there was nothing to keep, and that ratio means nothing.
"""

from __future__ import annotations

from compress.measure.quality.quality_result import Quality
from compress.report.report_schema import AtTarget, Report

CHANCE = 0.05
"""A difference counts where chance explains it in fewer cases than this."""


def test_of(report: Report, key: str, title: str) -> Quality | None:
    """The scores of a row on test at a target."""
    row = report.row(key)
    place: AtTarget | None = row.targets.get(title) if row else None
    return place.test if place else None


def kept(ours: Quality | None, theirs: Quality | None) -> float | None:
    """One score over another; None where the metric has no zero to speak of."""
    if ours is None or theirs is None or not ours.larger_is_better or theirs.primary.value <= 0:
        return None
    return ours.primary.value / theirs.primary.value


def kept_above_floor(report: Report, ours: Quality | None, theirs: Quality | None, title: str) -> float | None:
    """The same of what is above the floor; None where the teacher is not above it, or anything was not scored."""
    if ours is None or theirs is None or report.floor is None or not teacher_is_above_floor(report, title):
        return None
    sign = 1.0 if ours.larger_is_better else -1.0
    above = [sign * (each.primary.value - report.floor.primary.value) for each in (ours, theirs)]
    return above[0] / above[1] if above[1] > 0 else None


def teacher_is_above_floor(report: Report, title: str) -> bool | None:
    """Whether the teacher beats the floor by more than chance explains; None where one of them was not scored."""
    teacher, floor = test_of(report, report.teacher, title), report.floor
    if teacher is None or floor is None:
        return None
    if floor.versus_teacher is not None:
        return floor.versus_teacher.value < 0 and floor.versus_teacher.p_value < CHANCE
    # Reports of before the two were compared row by row: their intervals must be apart.
    if teacher.larger_is_better:
        return teacher.primary.low > floor.primary.high
    return teacher.primary.high < floor.primary.low
