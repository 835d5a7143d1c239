"""What one timing of the model alone is about: a row, or one of the several examples that a row gives."""

from __future__ import annotations

from compress.report.report_schema import Report, TargetFacts
from compress.tasks import kind_of

ROW = "row"
PLURALS = {"choice": "choices", "candidate": "candidates", "window": "windows", "text": "texts", ROW: "rows"}


def timed_unit(report: Report) -> str:
    """What the model alone answers one of at batch 1: `row`, `choice`, `candidate`, `window`, `text`."""
    return kind_of(report.task).unit_name(report.task)


def timed_units(report: Report) -> str:
    """Several of them."""
    return PLURALS[timed_unit(report)]


def rate(report: Report) -> str:
    """The column of a throughput: `rows/s`, `choices/s`."""
    return f"{timed_units(report)}/s"


def describe_call(report: Report) -> str:
    """What a timing of the model alone is: `one call`, and where rows are answered in parts, of which part."""
    if timed_unit(report) == ROW:
        return "one call"
    mean = report.data.examples_per_row
    per_row = f" (a test row has {mean:.1f} on average)" if mean else ""
    return f"one call with a batch of {timed_units(report)}{per_row}; end to end is of whole rows"


def per_call_suffix(report: Report, target: TargetFacts) -> str:
    """What was answered faster, where that is not a row: ` for 1 choice`, ` for 8 choices`."""
    if timed_unit(report) == ROW:
        return ""
    return f" for {target.batch} {timed_unit(report) if target.batch == 1 else timed_units(report)}"
