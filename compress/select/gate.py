"""The gate: whether a variant lost too much quality to be used.

It is evaluated on the select rows, so that test stays unseen until the end. A candidate may lose ``max_drop`` against
the teacher, a quantized one also ``quantize.max_drop`` against its own unquantized model. The point estimate decides,
or with ``strict`` the end of the interval.
"""

from __future__ import annotations

from collections.abc import Mapping

from compress.measure.quality.quality_result import ClassScore, Difference, Quality
from compress.select.selection import GateResult, Rules

ROUNDING = 1e-9
"""0.91 - 0.90 is 0.01 and a little in floating point; that little does not fail the gate."""
CLASS_ROWS = 50
"""Rows from which a class's recall is stable enough to gate."""


def gate(
    rules: Rules, select: Quality | None, teacher_classes: Mapping[str, ClassScore], *, quantized: bool
) -> GateResult:
    """Return whether scores on the select rows pass."""
    if select is None:
        return GateResult(passed=False, drop=None, allowed=rules.max_drop, reasons=("it was not scored on select",))
    drop, reasons = _check_drop("the teacher", select.versus_teacher, rules.max_drop, rules.strict, select)
    if quantized and rules.quantize_max_drop is not None:
        unquantized = "its own unquantized model"
        reasons += _check_drop(unquantized, select.versus_unquantized, rules.quantize_max_drop, rules.strict, select)[1]
    if rules.max_class_drop is not None:
        reasons += _check_classes(select.per_class, teacher_classes, rules.max_class_drop)
    return GateResult(passed=not reasons, drop=drop, allowed=rules.max_drop, reasons=tuple(reasons))


def format_points(value: float, larger_is_better: bool = True) -> str:
    """A difference of scores with its unit: `0.3 points`, or the plain number for an error."""
    if not larger_is_better:
        return f"{value:.4f}"
    shown = f"{100 * value:.2f}".rstrip("0").rstrip(".")
    shown = "0" if shown in ("-0", "") else shown
    return f"{shown} point{'' if shown == '1' else 's'}"


def _check_drop(
    baseline: str, difference: Difference | None, allowed: float, strict: bool, select: Quality
) -> tuple[float | None, list[str]]:
    """The drop, and a reason where it is more than allowed."""
    if difference is None:
        return None, [f"it was not compared with {baseline}"]
    drop = -difference.value
    decisive = -difference.low if strict else drop
    if decisive <= allowed + ROUNDING:
        return drop, []
    amount = format_points(decisive, select.larger_is_better)
    measured = f"may have lost {amount} (95 % interval)" if strict else f"lost {amount}"
    return drop, [f"{measured} against {baseline}, {format_points(allowed, select.larger_is_better)} allowed"]


def _check_classes(ours: Mapping[str, ClassScore], teachers: Mapping[str, ClassScore], allowed: float) -> list[str]:
    return [
        f"lost {format_points(teacher.recall - ours[label].recall)} of recall on '{label}',"
        f" {format_points(allowed)} allowed"
        for label, teacher in teachers.items()
        if teacher.rows >= CLASS_ROWS and label in ours and teacher.recall - ours[label].recall > allowed + ROUNDING
    ]
