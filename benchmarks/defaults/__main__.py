"""`python -m benchmarks.defaults`: the untouched recipe of `compress init` compared with other ways to train."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.defaults.comparison import DefaultsReport, Entry
from benchmarks.defaults.defaults_page import COLUMNS, GOALS, goals, page, scores
from benchmarks.defaults.real_sets import SETS
from benchmarks.defaults.training_contestants import CONTESTANTS, GRIDS, Case
from benchmarks.report_store import Store, beginning, carry_out, chosen, positive, run
from compress.console import Console
from compress.environment import describe_cpu
from compress.errors import CompressError

LIMIT, TRIAL_LIMIT = 8000, 200


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS), help="(default: %(default)s)")
    parser.add_argument(
        "--only", default=",".join(CONTESTANTS), help="contestants beside `ours` (default: %(default)s)"
    )
    parser.add_argument("--rows", type=positive, help=f"of each role, at most (default: {LIMIT}; 200 in a trial)")
    parser.add_argument("--seeds", type=positive, help="runs of each set (default: 3; 1 in a trial)")
    parser.add_argument("--grid", choices=tuple(GRIDS), help="of fine-tunings (default: full; trial in a trial)")
    parser.add_argument("--minutes", type=positive, help="nothing is started later (default: no limit)")
    parser.add_argument("--out", type=Path, help="folder of the report (default: reports/defaults; none in a trial)")
    parser.add_argument("--work", type=Path, help="folder of the trainings, kept (default: a temporary one)")
    parser.add_argument("--trial", action="store_true", help="everything in small, to see that it runs")
    given = parser.parse_args(arguments)
    given.sets = chosen(parser, "--sets", given.sets, tuple(SETS))
    given.only = tuple(dict.fromkeys(("ours", *chosen(parser, "--only", given.only, tuple(CONTESTANTS)))))
    if given.work and given.work.exists() and not given.work.is_dir():
        parser.error(f"--work: {given.work} is not a folder")
    given.rows = given.rows or (TRIAL_LIMIT if given.trial else LIMIT)
    given.seeds = given.seeds or (1 if given.trial else 3)
    given.grid = given.grid or ("trial" if given.trial else "full")
    if given.out is None and not given.trial:
        given.out = Path("reports/defaults")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; 1 where the default recipe did not run, 130 where it was interrupted."""
    given = parse(arguments)
    grid = " and ".join(", ".join(f"{value:g}" for value in values) for values in GRIDS[given.grid])
    report = DefaultsReport(**beginning(command(given), given.trial), limit=given.rows, grid=grid)
    store, console = Store(report, given.out, page), Console("human")
    if store.resume():
        store.earlier = sum(entry.seconds or 0.0 for entry in store.report.entries)
        console.note(f"goes on with {len(store.report.entries)} stored results")
    return carry_out(store, console, lambda work: compare(given, work, store, console), show, given.work)


def compare(given: argparse.Namespace, work: Path, store: Store[DefaultsReport], console: Console) -> None:
    """Run every contestant without a result on every set, seed by seed, storing each result."""
    for seed in range(given.seeds):
        for name in given.sets:
            folder = work / f"{name}-{seed}-{given.rows}"
            case = Case(name, seed, folder, given.rows, given.grid, given.trial)
            for contestant in missing(given.only, case, store.report):
                if given.minutes and store.seconds > 60 * given.minutes:
                    console.warn(
                        f"{given.minutes} minutes are over; {name}/{seed}/{contestant} and the rest did not run"
                    )
                    return
                entry = attempt(case, contestant)
                others = (each for each in store.report.entries if each.key != entry.key)
                store.update(entries=(*others, entry))
                found = ", ".join(f"{key} {score:.4f}" for key, score in entry.scores.items())
                console.note(f"[{store.seconds / 60:4.1f} min] {entry.key}: {found or entry.reason}")
                if contestant == "ours" and entry.reason:
                    break  # the others need its rows


def missing(names: Sequence[str], case: Case, report: DefaultsReport) -> tuple[str, ...]:
    """Return the contestants without a result; `ours` again where others need its rows and they are gone.

    What failed is tried again where that does not need another run of `ours`.
    """
    stored = {name: report.entry(f"{case.set}/{case.seed}/{name}") for name in names}
    failed = {name for name, entry in stored.items() if entry and entry.reason and (name == "ours" or case.ours.exists)}
    names = tuple(name for name, entry in stored.items() if entry is None or name in failed)
    return ("ours", *names) if names and "ours" not in names and not case.ours.exists else names


def attempt(case: Case, contestant: str) -> Entry:
    """Run one contestant; where it fails the entry has the reason."""
    try:
        entry = CONTESTANTS[contestant](case)
    except CompressError as error:
        entry = Entry(set=case.set, seed=case.seed, contestant=contestant, reason=error.message)
    return entry.model_copy(update={"processor": describe_cpu().model})


def show(report: DefaultsReport, console: Console) -> None:
    """Print the tables."""
    console.table(list(scores(report)), COLUMNS)
    console.table(list(goals(report)), GOALS)


def command(given: argparse.Namespace) -> str:
    """Return the options that decide a result, as typed; sets, contestants and seeds can be run in parts."""
    words = ["python -m benchmarks.defaults", *(["--trial"] if given.trial else [])]
    words += [f"--grid {given.grid}"] if given.grid != ("trial" if given.trial else "full") else []
    return " ".join([*words, f"--rows {given.rows}"])


if __name__ == "__main__":
    run(main)
