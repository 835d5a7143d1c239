"""The index of published reports: index.md and index.csv, generated from every report.json below their folder."""

import csv
import io
import json
from pathlib import Path

from compress import format_numbers as fmt
from compress.errors import CompressError, UsageError
from compress.report.charts.score_and_speed_charts import speed_picture
from compress.report.pages.render import write_pages
from compress.report.report_schema import REPORT_FILE, Report, read_report
from compress.report.retention import quality_on_test, winner_above_baseline
from compress.select.ledger import Verdict
from compress.storage.atomic_write import new_folder
from compress.tables import Cells, make_table, markdown_cell, markdown_table

COLUMNS = (
    *("report", "task", "target", "winner", "metric", "score", "score_low", "score_high", "teacher_score", "floor"),
    *("kept_above_floor", "p50_ms", "timing", "times_faster", "times_smaller", "bytes", "machine", "measured"),
)
"""The columns of index.csv: plain numbers, empty where there is none."""

PICTURE = "speed.svg"
"""Beside a report: its score against its speed at the first target."""
OF_RUNS = ("lock.json", "events.jsonl")
"""Files that the folder of a run has besides."""
HARNESS_PAGE = "harness/report.md"
"""The page of the check of the measuring harness."""


def write_index(reports: Path) -> list[Path]:
    """Write index.md and index.csv into ``reports``, and a picture of each report; return the reports they list."""
    if not reports.is_dir():
        raise CompressError(f"there is no folder of reports at {reports}.")
    paths = [path for path in sorted(reports.glob(f"*/{REPORT_FILE}")) if _is_run(path)]
    entries: list[dict[str, object]] = []
    for path in paths:
        report = read_report(path)
        entries += index_entries(path.parent.name, report)
        if picture := speed_picture(report, report.titles[0]):
            (path.parent / PICTURE).write_text(picture + "\n", encoding="utf-8")
    (reports / "index.csv").write_text(index_csv(entries), encoding="utf-8", newline="")
    text = index_markdown(entries)
    if (reports / HARNESS_PAGE).is_file():
        text += f"\nHow far the harness that timed all this was itself checked: [{HARNESS_PAGE}]({HARNESS_PAGE}).\n"
    (reports / "index.md").write_text(text, encoding="utf-8")
    return paths


def add_report(reports: Path, report: Report) -> Path:
    """Write a report and its pages as ``reports/NAME/``, and the indexes of all reports there; return the folder.

    Without the rows that winners got wrong: they hold texts of the data.
    """
    folder = reports / report.name
    if folder.exists() and not _is_report(folder):
        raise UsageError(f"{folder} is there and no report, so it is left as it is.", hint="--to names another folder")
    try:
        with new_folder(folder) as work:
            write_pages(work, report)
        write_index(reports)
    except OSError as error:
        raise CompressError(f"{folder} cannot be written: {error.strerror}.") from error
    return folder


def _is_report(folder: Path) -> bool:
    """Whether a folder holds the pages of a report alone, and no run."""
    if not (folder / REPORT_FILE).is_file():
        return False
    return not any(path.is_dir() or path.name in OF_RUNS for path in folder.iterdir())


def _is_run(path: Path) -> bool:
    """Whether a report is of a run; others (of the harness, of pretraining) have a key `about` or `held_out`."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError:  # reading it as a report gives the message
        return True
    return not isinstance(content, dict) or not {"about", "held_out"} & content.keys()


def index_entries(name: str, report: Report) -> list[dict[str, object]]:
    """Return one entry for each measured target."""
    return [_entry(name, report, verdict) for verdict in report.verdicts if report.target(verdict.target).present]


def index_csv(entries: list[dict[str, object]]) -> str:
    """Return the entries as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(entries)
    return text.getvalue()


def index_markdown(entries: list[dict[str, object]]) -> str:
    """Return the entries as a Markdown table with a link to each report."""
    left = ("target", "winner", "machine")
    return f"# Reports\n\n{markdown_table(make_table(map(_cells, entries), left=left), escape=False)}\n"


def _entry(name: str, report: Report, verdict: Verdict) -> dict[str, object]:
    row, result = report.row(verdict.winner), report.result(verdict.winner, verdict.target)
    test, teacher = (result.test if result else None), quality_on_test(report, report.teacher, verdict.target)
    versus = verdict.comparison_with(report.teacher)
    typical = result.latency.typical() if result else None
    return {
        "report": name,
        "task": report.task.name,
        "target": verdict.target,
        "winner": verdict.winner,
        "metric": report.task.metric,
        "score": test.primary.value if test else None,
        "score_low": test.primary.low if test else None,
        "score_high": test.primary.high if test else None,
        "teacher_score": teacher.primary.value if teacher else None,
        "floor": report.floor.primary.value if report.floor else None,
        "kept_above_floor": winner_above_baseline(report, verdict),
        "p50_ms": typical.value if typical else None,
        "timing": result.latency.status if result else None,
        "times_faster": versus.speedup.value if versus and versus.speedup else None,
        "times_smaller": versus.smaller if versus else None,
        "bytes": row.footprint.bytes_total if row and row.footprint else None,
        "machine": report.machine.cpu,
        "measured": report.created,
    }


def _cells(entry: dict[str, object]) -> Cells:
    def number(name: str) -> float | None:
        value = entry[name]
        return value if isinstance(value, (int, float)) else None

    def text(name: str) -> str:
        return markdown_cell(str(entry[name]))

    def score(name: str) -> str:
        value = number(name)
        return fmt.ABSENT if value is None else f"{value:.4g}"

    return {
        "report": f"[{text('report')}]({entry['report']}/report.md)",
        "task": text("task"),
        "target": text("target"),
        "winner": text("winner") if entry["winner"] else "none passed",
        "score": f"{score('score')} {markdown_cell(fmt.metric(str(entry['metric'])))}",
        "teacher": score("teacher_score"),
        "baseline": score("floor"),
        "retained above it": fmt.percent(number("kept_above_floor")),
        "p50": ("≈ " if entry["timing"] == "unstable" else "") + fmt.milliseconds(number("p50_ms")),
        "faster": fmt.ratio(number("times_faster")),
        "smaller": fmt.ratio(number("times_smaller")),
        "size": fmt.size(number("bytes")),
        "machine": text("machine"),
    }
