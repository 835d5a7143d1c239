"""`python -m benchmarks.pruning`: scores against measured speed for pruning criteria, goals and dropped layers."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.defaults.real_sets import SETS
from benchmarks.pruning.pruning_cases import Case, cases, run_case
from benchmarks.pruning.pruning_page import COLUMNS, GOALS, goals, page, picture, table_row
from benchmarks.pruning.pruning_results import Entry, PruningReport
from benchmarks.report_store import Store, beginning, carry_out, chosen, positive, run
from compress.console import Console
from compress.errors import CompressError
from compress.prune.criteria import CRITERIA
from compress.storage.atomic_write import atomic_write

SHARES = (0.5, 0.3)
SPEEDUPS = (1.5, 2.0, 2.5, 3.0, 4.0)
ROWS, TRIAL_ROWS = 8000, 200
MEASURE, TRIAL_MEASURE = {"budget": "90s", "memory": []}, {"rounds": 3, "processes": 1, "memory": []}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pruning", description=__doc__)
    parser.add_argument("--sets", default="sst2,mrpc", help="(default: %(default)s)")
    parser.add_argument("--criteria", default=",".join(CRITERIA), help="(default: %(default)s)")
    parser.add_argument(
        "--only", default="", help="run only cases whose `set/case` contains this; results stored before are kept"
    )
    parser.add_argument(
        "--rows", type=positive, help=f"of each role, at most (default: {ROWS}; {TRIAL_ROWS} in a trial)"
    )
    parser.add_argument("--minutes", type=positive, help="nothing is started later (default: no limit)")
    parser.add_argument("--out", type=Path, help="folder of the report (default: reports/pruning; none in a trial)")
    parser.add_argument("--work", type=Path, help="folder of the runs, kept (default: a temporary one)")
    parser.add_argument("--trial", action="store_true", help="one case of each kind, to see that it runs")
    given = parser.parse_args(arguments)
    given.sets = chosen(parser, "--sets", given.sets, tuple(SETS))
    given.criteria = chosen(parser, "--criteria", given.criteria, tuple(CRITERIA))
    given.rows = given.rows or (TRIAL_ROWS if given.trial else ROWS)
    if given.out is None and not given.trial:
        given.out = Path("reports/pruning")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; 130 where it was interrupted."""
    given = parse(arguments)
    whole = beginning(command(given), given.trial)
    report = PruningReport(**whole, rows=given.rows, cases=len(planned(given)))
    store, console = Store(report, given.out, page), Console("human")
    if store.resume():
        console.note(f"goes on with {len(store.report.entries)} stored results")
    return carry_out(store, console, lambda work: compare(given, work, store, console), show, given.work)


def compare(given: argparse.Namespace, work: Path, store: Store[PruningReport], console: Console) -> None:
    """Run every case without a result on every set, storing each result."""
    for name in given.sets:
        for case in wanted(given, name):
            if store.report.entry(f"{name}/{case.name}"):
                continue
            if given.minutes and store.seconds > 60 * given.minutes:
                console.warn(f"{given.minutes} minutes are over; {name}/{case.name} and the rest did not run")
                return
            entry = attempt(case, name, work / f"{name}-{given.rows}", given)
            store.update(entries=(*store.report.entries, entry))
            if given.out and (drawing := picture(store.report, name)):
                atomic_write(given.out / f"pruning-{name}.svg", drawing)
            speeds = ", ".join(f"{key} {value:.2f}" for key, value in entry.speedups.items())
            console.note(f"[{store.seconds / 60:4.1f} min] {entry.key}: {entry.reason or speeds}")


def wanted(given: argparse.Namespace, name: str) -> tuple[Case, ...]:
    """Return the cases of a set that were asked for."""
    return tuple(case for case in planned(given) if given.only in f"{name}/{case.name}")


def planned(given: argparse.Namespace) -> tuple[Case, ...]:
    """Return all cases of a set."""
    if given.trial:
        return cases(given.criteria[:1], SHARES[:1], SPEEDUPS[:1])
    return cases(given.criteria, SHARES, SPEEDUPS)


def attempt(case: Case, name: str, folder: Path, given: argparse.Namespace) -> Entry:
    """Run one case; where it fails the entry has the reason."""
    try:
        return run_case(case, name, folder, given.rows, TRIAL_MEASURE if given.trial else MEASURE)
    except CompressError as error:
        return Entry(set=name, case=case.name, reason=error.message)


def show(report: PruningReport, console: Console) -> None:
    """Print the tables."""
    console.table([table_row(entry) for entry in report.entries], ("set", *COLUMNS))
    console.table(list(goals(report)), GOALS)


def command(given: argparse.Namespace) -> str:
    """Return the options as they could be typed."""
    words = ["python -m benchmarks.pruning", *(["--trial"] if given.trial else [])]
    words += [f"--sets {','.join(given.sets)}"] if given.sets != ("sst2", "mrpc") else []
    words += [f"--criteria {','.join(given.criteria)}"] if given.criteria != tuple(CRITERIA) else []
    return " ".join([*words, f"--rows {given.rows}"])


if __name__ == "__main__":
    run(main)
