"""A report on the terminal: the ledger of each target, why its winner won, and the next command."""

import shlex
from pathlib import Path

from compress.console import Console
from compress.errors import pluralize
from compress.report.report_schema import Report
from compress.report.report_warnings import ranked_remarks
from compress.report.tables.ledger_tables import closing_table, closing_title, packaged_table
from compress.report.tables.model_tables import training_table
from compress.report.winner_summary import held_back_lines, predict_command

MOST_ROWS = 10
"""Rows of the table at the end of a run, baselines included."""
MOST_REMARKS = 4
"""Warnings at the end of a run, the most important ones."""
WIDE = 100
"""Columns of a terminal that is wide enough for long names in one line."""


def show_report(
    report: Report, folder: Path, console: Console, *, whole: bool = True, error_follows: bool = False
) -> None:
    """Show the ledger of each target, where its winner is, why it won, and how to use it.

    The ``whole`` report also has the slower rows, all warnings, the scores of trainings of which the best was used, and
    further formats. Where an ``error_follows`` that says why there is no winner, it is not said here.
    """
    if console.format == "json":
        console.data(report)
        return
    run = folder if folder.is_dir() else folder.parent
    if console.format == "human":
        _show_tables(report, console, whole=whole, name=_address(report, run))
    for verdict in report.verdicts:
        if console.format != "human":
            console.line(str(run / "winner" / verdict.target if verdict.winner else ""))
        elif verdict.winner or not (error_follows and report.target(verdict.target).present):
            console.line(f"{verdict.target}: {verdict.winner or 'no winner'}: {verdict.reason}")
        for line in held_back_lines(verdict):
            console.note(line)
    ranked = [each.text for each in ranked_remarks(report) if each.text in report.remarks]
    shown = ranked if whole else ranked[:MOST_REMARKS]
    for remark in shown:
        console.note(remark)
    if more := len(ranked) - len(shown):
        console.note(f"{pluralize(more, 'more warning')}: compress report {shlex.quote(_address(report, run))}")
    _show_where(report, run, console)


def _address(report: Report, run: Path) -> str:
    """Return what `compress report` calls a run: its name where it is in the usual folder."""
    return report.name if run == Path("runs") / report.name else str(run)


def _show_where(report: Report, run: Path, console: Console) -> None:
    """Show where the report and each winner are, and how a winner is used."""
    if (run / "report.html").is_file():
        console.note(f"report: {run / 'report.html'}")
    for verdict in report.verdicts:
        winner = run / "winner" / verdict.target
        if verdict.winner and winner.is_dir():
            console.note(f"the winner on {verdict.target} is in {winner}; next:")
            console.note(f"  {predict_command(report.task, report.target(verdict.target), str(winner))}")


def _show_tables(report: Report, console: Console, *, whole: bool, name: str) -> None:
    """Show the ledgers, in a whole report with every row and the further tables."""
    narrow, most = not console.out.isatty() or console.width < WIDE, None if whole else MOST_ROWS
    for target in report.targets:
        table, left_out = closing_table(report, target.title, most, narrow=narrow)
        if table.rows:
            console.table(table.rows, table.columns, title=closing_title(report, target.title))
        if left_out:
            console.note(f"{left_out} more: compress report {shlex.quote(name)}")
    if whole and report.trials:
        table = training_table(report)
        console.table(table.rows, table.columns, title="how the models were trained")
    if whole and report.packaged:
        table = packaged_table(report, report.packaged)
        console.table(table.rows, table.columns, title="further formats of the winners")
