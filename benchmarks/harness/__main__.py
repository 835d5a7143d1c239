"""`python -m benchmarks.harness`: check the measuring harness, print the table, write report.json and report.md."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.harness import self_checks, tool_comparison
from benchmarks.harness.benchmark_model import make_files
from benchmarks.harness.harness_page import page
from benchmarks.harness.harness_results import HarnessReport, Row
from benchmarks.harness.harness_setting import Setting
from benchmarks.report_store import Store, beginning, carry_out, chosen, in_place, now, positive, run
from compress.console import Console
from compress.measure.timing.cpu_affinity import choose_cores
from compress.recipe.measure_schema import Measure

BESIDE = ("bare", "bert_perf_test", "benchmark_app")
ITSELF: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "slowed": self_checks.check_slowed,
    "neighbour": self_checks.check_neighbour,
    "aa": self_checks.check_twins,
}
PARTS = (*BESIDE, *ITSELF)
"""In the order in which they run: the longest part last, so that a run that is cut short has the most rows."""

DEFAULT = Measure()
SHORT = Measure(rounds=4, processes=2, seconds=0.5, bootstrap=100)
"""Beside another tool only the median is wanted."""
TRIAL = Measure(rounds=4, processes=2, seconds=0.1, bootstrap=100)
TABLE = ("what", "goal", "found", "passed")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness", description="Check the measuring harness.")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between (default: %(default)s)")
    parser.add_argument("--sessions", type=positive, help="of twins; half as many slowed ones (default: 20)")
    parser.add_argument("--turns", type=positive, help="of the harness and of each other tool (default: 6)")
    parser.add_argument("--threads", type=positive, default=1, help="of every model (default: 1)")
    parser.add_argument("--length", type=positive, default=128, help="word pieces of the input (default: 128)")
    parser.add_argument("--minutes", type=float, default=25.0, help="nothing is begun after so many (default: 25)")
    parser.add_argument("--output", type=Path, help="folder of the report (default: reports/harness; none in a trial)")
    parser.add_argument("--trial", action="store_true", help="every part in small, to see that it runs")
    given = parser.parse_args(arguments)
    given.parts = chosen(parser, "--only", given.only, PARTS)
    given.sessions = given.sessions or (2 if given.trial else 20)
    given.turns = given.turns or (2 if given.trial else 6)
    if given.output is None and not given.trial:
        given.output = Path("reports/harness")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, and return 0 where no claim failed, 1 where one did, 130 where it was interrupted."""
    given = parse(arguments)
    console = Console("human")
    rows = (*tool_comparison.planned(BESIDE), *self_checks.planned(tuple(ITSELF), given.sessions))
    report = HarnessReport(
        **beginning(command(given), given.trial),
        length=given.length,
        threads=given.threads,
        rows=tuple(row if row.part in given.parts else _left_out(row) for row in rows),
    )
    store = Store(report, given.output, page)
    return carry_out(store, console, lambda work: _check(given, work, store, console), show)


def _check(given: argparse.Namespace, work: Path, store: Store[HarnessReport], console: Console) -> None:
    """Run all parts that were requested, printing and writing every row as it comes."""
    deadline = time.monotonic() + 60.0 * given.minutes
    console.note("making the model, its ONNX export and its INT8 …")
    files = make_files(work, batch=1, length=given.length)
    store.update(model=files.source)
    setting = Setting(
        files=files,
        work=work,
        cores=choose_cores(given.threads).own or None,
        threads=given.threads,
        batch=1,
        length=given.length,
        turns=given.turns,
        sessions=given.sessions,
        measure=TRIAL if given.trial else DEFAULT,
        beside=TRIAL if given.trial else SHORT,
        seconds=0.5 if given.trial else 2.0,
        deadline=deadline,
    )
    for row in _rows(setting, given.parts):
        keep(store, row)
        console.note(f"[{store.seconds / 60.0:4.1f} min] {row.what}: {row.found or 'nothing'} · {row.verdict}")
    if setting.over:
        console.warn(f"{given.minutes:g} minutes were up: some rows are not decided. --minutes gives more.")


def keep(store: Store[HarnessReport], row: Row) -> None:
    """Put a row in its place, with the time."""
    store.update(rows=in_place(store.report.rows, row.model_copy(update={"measured_at": now()})))


def _rows(setting: Setting, parts: Sequence[str]) -> Iterator[Row]:
    yield from tool_comparison.compare(setting, parts)
    for name, check in ITSELF.items():
        if name in parts:
            yield from check(setting)


def _left_out(row: Row) -> Row:
    return row.model_copy(update={"reason": "not run: left out by --only"})


def show(report: HarnessReport, console: Console) -> None:
    """All rows."""
    shown = ({"what": row.what, "goal": row.goal, "found": row.found, "passed": row.verdict} for row in report.rows)
    console.table(list(shown), TABLE)


def command(given: argparse.Namespace) -> str:
    """The options that matter, as they could be typed."""
    words = ["python -m benchmarks.harness", *(["--trial"] if given.trial else [])]
    if given.parts != PARTS:
        words.append(f"--only {','.join(given.parts)}")
    return " ".join([*words, f"--sessions {given.sessions} --turns {given.turns} --threads {given.threads}"])


if __name__ == "__main__":
    run(main)
