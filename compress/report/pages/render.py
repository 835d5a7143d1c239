"""From a report to its pages: report.md and report.html, both drawn from report.json alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.environment import require
from compress.report import format_numbers
from compress.report.charts.layer_map_chart import layer_pictures
from compress.report.charts.overview_charts import NARROW, WIDE, legend, size_figure, speed_figure, stage_figure
from compress.report.format_numbers import ABSENT
from compress.report.pages.markdown import markdown_cell, markdown_table
from compress.report.pages.page_sections import Block, Group, groups
from compress.report.report_schema import Comparison, LedgerRow, Report, TargetFacts, Verdict, write_report
from compress.report.tables import ledger_tables, speed_tables
from compress.report.tables.machine_facts import describe_target, environment_facts, row_counts, truncation
from compress.report.tables.quality_tables import above_floor, scored
from compress.report.tables.speed_tables import unstable_reasons
from compress.report.tables.table_type import Table
from compress.report.tables.throughput_unit import describe_call, per_call_suffix
from compress.report.tables.training_table import training_table

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
MARKDOWN, HTML = "report.md", "report.html"


@dataclass(frozen=True)
class Section:
    """One target as the pages show it."""

    target: TargetFacts
    conditions: str
    """`1 thread, batch 1, lengths of the data`."""
    verdict: Verdict | None
    winner: LedgerRow | None
    today: Comparison | None
    """The winner beside the teacher as it runs today."""
    p50: str
    p50_today: str
    at_once: str
    """What the model answered in that time, where it is not rows: ` for 1 choice`."""
    score: str
    above_floor: str
    """What the winner keeps of the teacher's score above the floor, in words."""
    ledger: Table
    unstable: list[str]
    """Why the timings of the winner or the teacher are unstable."""
    stages: Table | None
    groups: tuple[Group, ...]


def write_pages(folder: Path, report: Report) -> None:
    """Write report.json, report.md and report.html into ``folder``."""
    write_report(folder, report)
    (folder / MARKDOWN).write_text(render_markdown(report), encoding="utf-8")
    (folder / HTML).write_text(render_html(report), encoding="utf-8")


def render_markdown(report: Report) -> str:
    """The report as a page that any viewer of Markdown shows."""
    return _environment(escape=False).get_template("report.md.j2").render(_context(report))


def render_html(report: Report) -> str:
    """The report as one HTML file that needs nothing else: no script, no font, no network."""
    figures = {
        title: {
            "speed": (speed_figure(report, title, WIDE), speed_figure(report, title, NARROW)),
            "size": size_figure(report, title, NARROW),
        }
        for title in report.titles
    }
    stages = {
        verdict.target: stage_figure(report, verdict.target, verdict.winner, NARROW)
        for verdict in report.verdicts
        if verdict.winner
    }
    context = _context(report)
    context |= {"figures": figures, "stage_figures": stages, "legend": legend(report), "drawn": _drawn}
    return _environment(escape=True).get_template("report.html.j2").render(context)


def _drawn(block: Block) -> tuple[str | None, str | None]:
    """A block's picture for a desk and for a phone; one drawing serves both where width gains nothing."""
    if block.draw is None:
        return None, None
    narrow = block.draw(NARROW)
    return (block.draw(WIDE) if block.wide else narrow), narrow


def section(report: Report, target: TargetFacts) -> Section:
    """Everything the pages say about one target."""
    title = target.title
    verdict = ledger_tables.verdict_of(report, title)
    winner = report.row(verdict.winner) if verdict and verdict.winner else None
    found = verdict.comparisons if verdict else ()
    place = winner.targets[title] if winner else None
    return Section(
        target=target,
        conditions=describe_target(target),
        verdict=verdict,
        winner=winner,
        today=next((one for one in found if one.key == report.teacher), None),
        p50=_p50(winner, title),
        p50_today=_p50(report.row(report.teacher), title),
        at_once=per_call_suffix(report, target),
        score=scored(place.test if place else None),
        above_floor=above_floor(report, place.test if place else None, title),
        ledger=ledger_tables.ledger(report, title),
        unstable=unstable_reasons(report, title, winner.key, report.teacher) if winner else [],
        stages=ledger_tables.stages(report, title, winner.key) if winner else None,
        groups=groups(report, title, winner.key if winner else _last(report, title), verdict),
    )


def _last(report: Report, title: str) -> str:
    """Where nothing won, the last row that was scored is looked at more closely."""
    scored_rows = [row.key for row in report.rows if title in row.targets and row.targets[title].test]
    return scored_rows[-1] if scored_rows else report.teacher


def _p50(row: LedgerRow | None, title: str) -> str:
    place = row.targets.get(title) if row else None
    return speed_tables.p50_of(place.latency) if place else ABSENT


def _context(report: Report) -> dict[str, Any]:
    return {
        "report": report,
        "sections": [section(report, target) for target in report.targets],
        "costs": ledger_tables.costs(report),
        "environment": environment_facts(report),
        "limits": speed_tables.limits(report.limits),
        "recipe": json.dumps(report.recipe, indent=2, ensure_ascii=False),
        "words": format_numbers,
        "truncated": truncation(report),
        "call": describe_call(report),
        "rows": row_counts(report),
        "made": training_table(report),
        "layer_pictures": layer_pictures(report),
    }


def _environment(*, escape: bool) -> Environment:
    jinja2 = require("jinja2", "report")
    environment: Environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=escape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"cell": markdown_cell, "markdown": markdown_table}
    return environment
