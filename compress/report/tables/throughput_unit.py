"""The unit of a timing of the model alone: a row, or one of the examples that a row consists of."""

from __future__ import annotations

from compress.errors import pluralize
from compress.report.report_schema import Report
from compress.report.run_facts import TargetFacts
from compress.tasks import kind_of

ROW = "row"


def timed_unit(report: Report) -> str:
    """What a call at batch 1 processes: `row`, `choice`, `candidate`, `window` or `text`."""
    return kind_of(report.task).unit_name(report.task)


def timed_units(report: Report) -> str:
    """The plural of the unit."""
    return f"{timed_unit(report)}s"


def describe_call(report: Report) -> str:
    """What is timed: `one call`, and for rows of several examples, of which ones."""
    if timed_unit(report) == ROW:
        return "one call"
    mean = report.data.examples_per_row
    per_row = f" (a test row has {mean:.1f} on average)" if mean else ""
    return f"one call with a batch of {timed_units(report)}{per_row}; end to end covers complete rows"


def per_call_suffix(report: Report, target: TargetFacts) -> str:
    """What one call processed, unless it is rows: ` for 1 choice`, ` for 8 choices`."""
    if timed_unit(report) == ROW:
        return ""
    return f" for {pluralize(target.batch, timed_unit(report))}"
