"""The shelf of published reports: reports/index.md and index.csv, made anew from every report.json below it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from compress.errors import CompressError
from compress.report.format_numbers import (
    ABSENT,
    format_metric,
    format_milliseconds,
    format_percent,
    format_ratio,
    format_size,
)
from compress.report.pages.markdown import markdown_cell
from compress.report.report_schema import REPORT_FILE, LedgerRow, Report, Verdict, read_report
from compress.report.retention import quality_on_test, ratio_above_baseline

COLUMNS = (
    "report",
    "task",
    "target",
    "winner",
    "metric",
    "score",
    "score_low",
    "score_high",
    "teacher_score",
    "floor",
    "kept_above_floor",
    "p50_ms",
    "timing",
    "times_faster",
    "times_smaller",
    "bytes",
    "machine",
    "measured",
)
"""The columns of index.csv: plain numbers, empty where there is none."""

HARNESS_PAGE = "harness/report.md"
"""Where the check of the measuring harness leaves its page."""


def write_index(reports: Path) -> list[Path]:
    """Write index.md and index.csv into ``reports``; returns the reports they list."""
    if not reports.is_dir():
        raise CompressError(f"there is no folder of reports at {reports}.")
    found = [path for path in sorted(reports.glob(f"*/{REPORT_FILE}")) if _of_a_run(path)]
    entries = [entry for path in found for entry in index_entries(path.parent.name, read_report(path))]
    (reports / "index.csv").write_text(index_csv(entries), encoding="utf-8", newline="")
    text = index_markdown(entries)
    if (reports / HARNESS_PAGE).is_file():
        text += f"\nHow far the harness that timed all this was itself checked: [{HARNESS_PAGE}]({HARNESS_PAGE}).\n"
    (reports / "index.md").write_text(text, encoding="utf-8")
    return found


def _of_a_run(path: Path) -> bool:
    """Whether it tells of a run: a report of something else (of the harness) says what it is about."""
    try:
        told = json.loads(path.read_bytes())
    except ValueError:  # whoever reads it next says what is wrong with it
        return True
    return not isinstance(told, dict) or "about" not in told


def index_entries(name: str, report: Report) -> list[dict[str, object]]:
    """One entry a target that was measured."""
    measured = {target.title for target in report.targets if target.present}
    return [_entry(name, report, verdict) for verdict in report.verdicts if verdict.target in measured]


def index_csv(entries: list[dict[str, object]]) -> str:
    """The entries as a table for programs."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(entries)
    return text.getvalue()


def index_markdown(entries: list[dict[str, object]]) -> str:
    """The entries as a table for people, each with a link to its report."""
    lines = [
        "# Reports",
        "",
        "| report | task | target | winner | score | teacher | floor | kept above it | p50 | faster | smaller | size"
        " | machine |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    lines += ["| " + " | ".join(_cells(entry)) + " |" for entry in entries]
    return "\n".join(lines) + "\n"


def _entry(name: str, report: Report, verdict: Verdict) -> dict[str, object]:
    row = report.row(verdict.winner) if verdict.winner else None
    place = row.targets[verdict.target] if row else None
    test = place.test if place else None
    today = next((one for one in verdict.comparisons if one.key == report.teacher), None)
    return {
        "report": name,
        "task": report.task.name,
        "target": verdict.target,
        "winner": verdict.winner,
        "metric": report.task.metric,
        "score": test.primary.value if test else None,
        "score_low": test.primary.low if test else None,
        "score_high": test.primary.high if test else None,
        "teacher_score": _score_of(report.row(report.teacher), verdict.target),
        "floor": report.floor.primary.value if report.floor else None,
        "kept_above_floor": ratio_above_baseline(
            report, test, quality_on_test(report, report.teacher, verdict.target), verdict.target
        ),
        "p50_ms": place.latency.model.p50.value if place and place.latency.model else None,
        "timing": place.latency.status if place else None,
        "times_faster": today.speedup.value if today and today.speedup else None,
        "times_smaller": today.smaller if today else None,
        "bytes": row.footprint.bytes_total if row and row.footprint else None,
        "machine": report.machine.name,
        "measured": report.created,
    }


def _score_of(row: LedgerRow | None, title: str) -> float | None:
    place = row.targets.get(title) if row else None
    return place.test.primary.value if place and place.test else None


def _cells(entry: dict[str, object]) -> list[str]:
    def number(name: str) -> float | None:
        value = entry[name]
        return value if isinstance(value, (int, float)) else None

    def plain(name: str) -> str:
        return markdown_cell(str(entry[name]))

    score, teacher, floor = (
        ABSENT if (value := number(name)) is None else f"{value:.4g}" for name in ("score", "teacher_score", "floor")
    )
    return [
        f"[{plain('report')}]({entry['report']}/report.md)",
        plain("task"),
        plain("target"),
        plain("winner") if entry["winner"] else "none passed",
        f"{score} {markdown_cell(format_metric(str(entry['metric'])))}",
        teacher,
        floor,
        format_percent(number("kept_above_floor")),
        ("≈ " if entry["timing"] == "unstable" else "") + format_milliseconds(number("p50_ms")),
        format_ratio(number("times_faster")),
        format_ratio(number("times_smaller")),
        format_size(number("bytes")),
        plain("machine"),
    ]
