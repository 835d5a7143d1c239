"""`python -m benchmarks.harness`: check the measuring harness, print the table, write report.json and report.md."""

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
from compress.measure.timing.process_limits import choose_cores
from compress.recipe.measure_schema import Measure

OTHER_TOOLS = ("bare", "bert_perf_test", "benchmark_app")
SELF_CHECKS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "slowed": self_checks.check_slowed,
    "neighbour": self_checks.check_neighbour,
    "aa": self_checks.check_twins,
}
PARTS = (*OTHER_TOOLS, *SELF_CHECKS)
"""In the order in which they run: the longest part last, so that a run that is cut short has the most rows."""

DEFAULT = Measure()
SHORT = Measure(rounds=4, processes=2, seconds=0.5, bootstrap=100)
"""For comparisons with other tools, which need only the median."""
TRIAL = Measure(rounds=4, processes=2, seconds=0.1, bootstrap=100)
TABLE = ("what", "goal", "result", "passed")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness", description="Check the measuring harness.")
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts (default: %(default)s)")
    parser.add_argument("--sessions", type=positive, help="of twins; half as many slowed ones (default: 20)")
    parser.add_argument("--turns", type=positive, help="of the harness and of each other tool (default: 6)")
    parser.add_argument("--threads", type=positive, default=1, help="of every model (default: 1)")
    parser.add_argument("--length", type=positive, default=128, help="word pieces of the input (default: 128)")
    parser.add_argument("--minutes", type=float, default=25.0, help="no session starts after so many (default: 25)")
    parser.add_argument("--output", type=Path, help="folder of the report (default: reports/harness; none in a trial)")
    parser.add_argument("--trial", action="store_true", help="a small run that decides nothing")
    options = parser.parse_args(arguments)
    options.parts = chosen(parser, "--only", options.only, PARTS)
    options.sessions = options.sessions or (2 if options.trial else 20)
    options.turns = options.turns or (2 if options.trial else 6)
    if options.output is None and not options.trial:
        options.output = Path("reports/harness")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Check; return 0 where no claim failed, 1 where one did, 130 where interrupted."""
    options = parse(arguments)
    console = Console("human")
    rows = (*tool_comparison.planned(OTHER_TOOLS), *self_checks.planned(tuple(SELF_CHECKS), options.sessions))
    report = HarnessReport(
        **beginning(command(options), options.trial),
        length=options.length,
        threads=options.threads,
        rows=tuple(row if row.part in options.parts else _skipped(row) for row in rows),
    )
    store = Store(report, options.output, page)
    return carry_out(store, console, lambda work: _check(options, work, store, console), show)


def _check(options: argparse.Namespace, work: Path, store: Store[HarnessReport], console: Console) -> None:
    """Run all parts that were requested, printing and writing every row as it comes."""
    deadline = time.monotonic() + 60.0 * options.minutes
    console.note("making the model, its ONNX export and its INT8 …")
    files = make_files(work, batch=1, length=options.length)
    store.update(model=files.source)
    setting = Setting(
        files=files,
        work=work,
        cores=choose_cores(options.threads).own or None,
        threads=options.threads,
        batch=1,
        length=options.length,
        turns=options.turns,
        sessions=options.sessions,
        measure=TRIAL if options.trial else DEFAULT,
        comparison=TRIAL if options.trial else SHORT,
        seconds=0.5 if options.trial else 2.0,
        deadline=deadline,
    )
    for row in _rows(setting, options.parts):
        store_row(store, row)
        console.note(f"[{store.seconds / 60.0:4.1f} min] {row.what}: {row.result or 'nothing'} · {row.verdict}")
    if setting.over:
        console.warn(f"{options.minutes:g} minutes are over: some rows are not decided. Raise --minutes.")


def store_row(store: Store[HarnessReport], row: Row) -> None:
    """Replace a row of the report, with the time of its measurement."""
    store.update(rows=in_place(store.report.rows, row.model_copy(update={"measured_at": now()})))


def _rows(setting: Setting, parts: Sequence[str]) -> Iterator[Row]:
    yield from tool_comparison.compare(setting, parts)
    for name, check in SELF_CHECKS.items():
        if name in parts:
            yield from check(setting)


def _skipped(row: Row) -> Row:
    return row.model_copy(update={"reason": "not run: left out by --only"})


def show(report: HarnessReport, console: Console) -> None:
    """Print all rows."""
    shown = ({"what": row.what, "goal": row.goal, "result": row.result, "passed": row.verdict} for row in report.rows)
    console.table(list(shown), TABLE)


def command(options: argparse.Namespace) -> str:
    """Return the command with its relevant options."""
    parts = ["python -m benchmarks.harness", *(["--trial"] if options.trial else [])]
    if options.parts != PARTS:
        parts.append(f"--only {','.join(options.parts)}")
    return " ".join([*parts, f"--sessions {options.sessions} --turns {options.turns} --threads {options.threads}"])


if __name__ == "__main__":
    run(main)
