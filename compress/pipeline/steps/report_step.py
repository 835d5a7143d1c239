"""The report step: gather, judge and draw the results of all other steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compress.pipeline.step_context import StepContext

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan

DISAGREEMENTS_FILE = "disagreements.jsonl"
"""Holds texts of the user's data: it stays in the run's folder, and is never published."""


def report(context: StepContext, plan: Plan) -> None:
    """Put everything that was found together, judge it and draw it; rows that stand out go into a file beside it."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.measure.quality.disagreement import write_disagreements
    from compress.pipeline.steps.build_report import build_report, disagreements
    from compress.report.pages.render import write_pages
    from compress.tasks import kind_of

    facts = build_report(plan, context)
    write_pages(context.work, facts)
    rows = load_prepared(context.inputs["data"]).rows("test")
    label_fields = kind_of(facts.task).label_fields
    write_disagreements(context.work / DISAGREEMENTS_FILE, rows, disagreements(facts), label_fields)
