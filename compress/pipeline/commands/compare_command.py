"""`compress report A B …`: runs side by side, with paired tests of their winners' answers where test rows are equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.console import Console
from compress.errors import CompressError, UsageError
from compress.model_folder.cascade_info import CASCADE
from compress.pipeline.commands.listing import run_folder
from compress.pipeline.run_lock import step_folder
from compress.report.compare_runs import Comparison, Pair, check_same_task, compare_reports, show_comparison, tables
from compress.report.report_schema import ROWS_PAGE, Report, read_report
from compress.storage.atomic_write import atomic_write
from compress.storage.file_names import ANSWERS_FILE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compress.data.splits.prepare_splits import PreparedData
    from compress.report.pages.comparison_page import ChangedRows

COMPARISON_FOLDER = "compared"
"""In the first run's folder: a folder for each comparison with it."""
COMPARISON_PAGE, COMPARISON_FILE = "comparison.html", "comparison.json"


@dataclass(frozen=True)
class FinishedRun:
    """A run that is compared."""

    name: str
    folder: Path
    report: Report

    @cached_property
    def test(self) -> PreparedData:
        """Its prepared rows."""
        from compress.data.splits.prepare_splits import load_prepared

        return load_prepared(step_folder(self.folder, "data"))

    @cached_property
    def test_digest(self) -> str:
        """Of the rows of test, in their order."""
        digest = hashlib.sha256()
        for row in self.test.rows("test"):
            digest.update(json.dumps(row, sort_keys=True, default=str).encode())
        for row in self.test.documents("test"):
            digest.update(json.dumps(row, sort_keys=True, default=str).encode())
        return digest.hexdigest()

    def answers(self, title: str) -> NDArray[Any]:
        """The winner's answers on test, as scored for a target; a UsageError where they are not there any more."""
        import numpy as np

        from compress.pipeline.steps.scoring_steps import SCORING_BATCH

        verdict = self.report.verdict(title)
        row = self.report.row(verdict.winner if verdict else None)
        result = self.report.result(row.key, title) if row else None
        if row is None or result is None or result.test is None:
            raise UsageError(f"{self.name} has no winner on {title}.")
        device = self.report.target(title).device
        scored_at = f"-{row.variant.name}-{device}-b{result.test.batch or SCORING_BATCH}"
        step = f"score-{row.model}{'' if row.variant.format == CASCADE else scored_at}"
        with np.load(step_folder(self.folder, step) / ANSWERS_FILE, allow_pickle=False) as stored:
            answers: NDArray[Any] = stored["test"]
        return answers


def compare(names: Sequence[str], runs: Path, console: Console, to: Path | None = None) -> Path:
    """Compare runs, show the result, and write its pages; returns the page.

    The rows whose answers changed hold texts of the data. They are written beside the first run alone, as rows.html:
    not into ``to``.
    """
    finished = list(_finished(names, runs))
    reports, titles = [each.report for each in finished], [each.name for each in finished]
    check_same_task(reports, titles)
    paired: dict[tuple[str, int], Pair | str] = {}
    changed: list[ChangedRows] = []
    for number, other in enumerate(finished[1:], 1):
        for title in finished[0].report.titles:
            if title not in other.report.titles:
                continue
            try:
                pair, rows = _pair(finished[0], other, title)
                paired[title, number] = pair
                changed += [rows] if rows.rows else []
            except (CompressError, OSError) as error:
                paired[title, number] = str(error).rstrip(".")
    comparison = compare_reports(reports, titles, paired)
    page = _write_pages(comparison, changed, finished, to)
    if console.format == "json":
        console.data(comparison)
    else:
        show_comparison(comparison, console)
        console.note(f"page: {page}")
    return page


def _finished(names: Sequence[str], runs: Path) -> Iterator[FinishedRun]:
    """Yield the runs; of equal names each gets its folder."""
    folders = [run_folder(name, runs) for name in names]
    folders = [folder if folder.is_dir() else folder.parent for folder in folders]
    reports = [read_report(folder) for folder in folders]
    titles = [report.name for report in reports]
    for name, folder, report in zip(titles, folders, reports, strict=True):
        yield FinishedRun(name if titles.count(name) == 1 else str(folder), folder, report)


def _pair(first: FinishedRun, other: FinishedRun, title: str) -> tuple[Pair, ChangedRows]:
    """Compare the answers of two winners on the same rows."""
    from compress.measure import BootstrapScorer
    from compress.report.pages.comparison_page import changed_rows
    from compress.tasks import kind_of

    if first.report.data.digest != other.report.data.digest and first.test_digest != other.test_digest:
        raise UsageError("their rows of test differ")
    if first.report.task.labels != other.report.task.labels:
        raise UsageError("their classes have another order")
    ours, theirs = other.answers(title), first.answers(title)
    task, rows = first.test.info.task_info, first.test.rows("test")
    kind = kind_of(task)
    gold = kind.gold(rows)
    scorer = BootstrapScorer(kind, task, first.report.recipe.get("measure", {}).get("bootstrap", 1000))
    shown = changed_rows(kind, task, rows, gold, theirs, ours, names=(first.name, other.name), target=title)
    right = [kind.correct(answers, gold) for answers in (theirs, ours)]
    gained, lost = None, None
    if right[0] is not None and right[1] is not None:
        gained, lost = int((right[1] & ~right[0]).sum()), int((right[0] & ~right[1]).sum())
    difference = scorer.difference(ours, theirs, gold)
    return Pair(difference=difference, changed=shown.changed, gained=gained, lost=lost), shown


def _write_pages(
    comparison: Comparison, changed: Sequence[ChangedRows], finished: Sequence[FinishedRun], to: Path | None
) -> Path:
    from compress.report.pages.comparison_page import comparison_page, rows_page

    others = "-".join(each.folder.name for each in finished[1:])
    folder = to or finished[0].folder / COMPARISON_FOLDER / others
    try:
        if changed and to is None:
            atomic_write(folder / ROWS_PAGE, rows_page(comparison.names, changed))
        page = comparison_page(comparison, list(tables(comparison)), has_rows=bool(changed) and to is None)
        atomic_write(folder / COMPARISON_PAGE, page)
        atomic_write(folder / COMPARISON_FILE, comparison.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise CompressError(f"{folder} cannot be written: {error.strerror}.") from error
    return folder / COMPARISON_PAGE
