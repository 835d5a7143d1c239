"""report.md and report.html, both generated from report.json alone."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from compress import format_numbers as fmt
from compress.environment import require
from compress.report.charts.heat_maps import layer_map_chart, pruning_chart
from compress.report.charts.score_and_speed_charts import (
    AXES,
    NARROW,
    WIDE,
    colour_of,
    latency_charts,
    legend,
    speed_chart,
    training_chart,
)
from compress.report.pages.page_sections import block_groups
from compress.report.report_schema import PROBE_PAGE, ROWS_PAGE, LedgerRow, Report, write_report
from compress.report.report_warnings import ranked_remarks
from compress.report.retention import larger_is_better, winner_above_baseline
from compress.report.run_facts import TargetFacts
from compress.report.tables import ledger_tables
from compress.report.tables.ledger_tables import packaged_table
from compress.report.tables.machine_facts import describe_target, environment_facts, row_counts, truncation
from compress.report.tables.model_tables import describe_goal, pruning_table, speedup_table, training_table
from compress.report.tables.quality_tables import format_quality
from compress.report.tables.size_tables import vocabulary_table
from compress.report.tables.speed_tables import (
    describe_call,
    format_p50,
    limits_table,
    per_call_suffix,
    unstable_reasons,
)
from compress.report.winner_summary import held_back_lines, lineage, predict_command, predict_in_python, trust
from compress.select.ledger import Verdict
from compress.tables import markdown_cell, markdown_table

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
MARKDOWN, HTML = "report.md", "report.html"
NO_ADDRESSES: Mapping[str, str] = MappingProxyType({})


def write_pages(folder: Path, report: Report, addresses: Mapping[str, str] = NO_ADDRESSES) -> None:
    """Write report.json, report.md and report.html into ``folder``.

    ``addresses``: by target, the folder that its winner is opened from, if it can be. The HTML page links to the page
    of wrong rows if ``folder`` has one, which only a run's own folder does.
    """
    write_report(folder, report)
    (folder / MARKDOWN).write_text(render_markdown(report, addresses), encoding="utf-8")
    beside = {name: (folder / name).is_file() for name in (ROWS_PAGE, PROBE_PAGE)}
    page = render_html(report, addresses, has_rows=beside[ROWS_PAGE], has_probe=beside[PROBE_PAGE])
    (folder / HTML).write_text(page, encoding="utf-8")


def render_markdown(report: Report, addresses: Mapping[str, str] = NO_ADDRESSES) -> str:
    """Return the report as a Markdown page."""
    return page_environment(escape=False).get_template("report.md.j2").render(_context(report, addresses))


def render_html(
    report: Report, addresses: Mapping[str, str] = NO_ADDRESSES, *, has_rows: bool = False, has_probe: bool = False
) -> str:
    """Return the report as one HTML file without fonts or requests; beside a page of rows, and one of a probe.

    One script, which the page's policy names by its hash, adds to charts what the page shows without it too.
    """
    script = page_script("chart.js")
    charts = {
        "widths": {"wide": WIDE, "narrow": NARROW},
        "speed_chart": partial(speed_chart, report),
        "training_chart": partial(training_chart, report),
        "axes": AXES,
        "better": "Up" if larger_is_better(report) else "Down",
        "script": script,
        "script_hash": script_hash(script),
        "layer_map_chart": layer_map_chart,
        "pruning_chart": pruning_chart,
        "latency_charts": latency_charts,
        "milliseconds": fmt.milliseconds,
        "seconds": fmt.seconds,
        "colour_of": partial(colour_of, report),
        "legend": legend(report),
        "rows_page": ROWS_PAGE if has_rows else None,
        "probe_page": PROBE_PAGE if has_probe else None,
    }
    return page_environment(escape=True).get_template("report.html.j2").render(_context(report, addresses) | charts)


def _section(report: Report, target: TargetFacts, address: str | None) -> dict[str, Any]:
    """Return what the pages show of one target, in detail the winner or else the last row that was scored."""
    title, verdict = target.title, report.verdict(target.title)
    winner = report.row(verdict.winner if verdict else None)
    unstable = unstable_reasons(report, title, winner.key, report.teacher) if winner else []
    heading = "Winner" if winner else "No winner"
    if verdict and report.is_undecided(verdict):
        heading = "Undecided winner"
    return {
        "target": target,
        "conditions": describe_target(target),
        "verdict": verdict,
        "winner": winner,
        "heading": heading,
        "figures": list(_figures(report, target, winner, verdict, bool(unstable))) if winner and verdict else [],
        "use": _use(report, target, address) if winner and address else {},
        "unstable": unstable,
        "trust": list(trust(report, verdict)) if winner and verdict else [],
        "lineage": lineage(report, winner) if winner else [],
        "held_back": held_back_lines(verdict) if verdict else [],
        "ledger": ledger_tables.ledger_table(report, title),
        "stages": ledger_tables.stage_table(report, title, winner.key if winner else ""),
        "groups": block_groups(report, title, report.detailed(title), verdict),
    }


def _use(report: Report, target: TargetFacts, address: str) -> dict[str, str]:
    """Return what predicts with the winner, in a terminal and in Python."""
    return {
        "sh": predict_command(report.task, target, address),
        "python": "\n".join(predict_in_python(report.task, target, address)),
    }


def _figures(
    report: Report, target: TargetFacts, winner: LedgerRow, verdict: Verdict, unstable: bool
) -> Iterator[tuple[str, str]]:
    """Yield numbers that compare the winner with the teacher in PyTorch, those that are known, and their meaning."""
    versus = verdict.comparison_with(report.teacher)
    teacher, result = (report.result(key, target.title) for key in (report.teacher, winner.key))
    if versus is None or teacher is None or result is None:
        return
    if versus.speedup is not None:
        faster = f"faster ({fmt.span(versus.speedup, fmt.ratio)}): {format_p50(result.latency)} instead of"
        p50 = f"{format_p50(teacher.latency)}{per_call_suffix(report, target)}"
        yield ("≈ " if unstable else "") + fmt.ratio(versus.speedup.value), f"{faster} {p50}"
    if versus.smaller is not None:
        yield fmt.ratio(versus.smaller), f"smaller: {fmt.size(winner.bytes_total)}"
    if versus.kept is not None:
        metric = fmt.metric(report.task.metric)
        yield fmt.percent(versus.kept), f"of the teacher's {metric}: {format_quality(result.test)}"
    above = winner_above_baseline(report, verdict)
    if above is not None:
        yield fmt.percent(above), f"of what the teacher gains over {report.floor_name}"


def _context(report: Report, addresses: Mapping[str, str]) -> dict[str, Any]:
    return {
        "report": report,
        "remarks": ranked_remarks(report),
        "sections": [_section(report, target, addresses.get(target.title)) for target in report.targets],
        "packaged": packaged_table(report, report.packaged),
        "steps": ledger_tables.step_table(report),
        "environment": environment_facts(report),
        "limits": limits_table(report.limits),
        "recipe": json.dumps(report.recipe, indent=2, ensure_ascii=False),
        "metric": fmt.metric(report.task.metric),
        "truncated": truncation(report),
        "call": describe_call(report),
        "rows": row_counts(report),
        "training": training_table(report),
        "pruned": {model: pruning_table(pruning) for model, pruning in report.pruned.items()},
        "describe_goal": describe_goal,
        "speedup_table": partial(speedup_table, report),
        "vocabulary": vocabulary_table(report),
    }


def page_script(name: str) -> str:
    """Return the script of a page, which is in the page itself."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def script_hash(script: str) -> str:
    """Return what names this script in a page's policy, which lets no other run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def page_environment(*, escape: bool) -> Environment:
    """Return the templates of pages; ``escape`` what is HTML."""
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
