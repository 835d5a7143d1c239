"""The report step: results of all other steps as report.json and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compress.pipeline.step_context import StepContext

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan

DISAGREEMENTS_FILE = "disagreements.jsonl"
"""Holds texts of the user's data: it stays in the run's folder, and is never published."""


def report(context: StepContext, plan: Plan) -> None:
    """Write the report as JSON and pages, and the largest disagreements with the teacher as a file of rows."""
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
