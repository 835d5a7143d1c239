"""`python -m benchmarks.small_students`: students without attention and cascades beside other small models."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.report_store import Store, beginning, carry_out, chosen, in_place, positive, run
from benchmarks.small_students.small_case import Case, run_fasttext, run_model2vec, stored_classes
from benchmarks.small_students.small_page import COLUMNS, GOALS, goals, lines, page, picture
from benchmarks.small_students.small_results import WITH_TEXTS, Entry, SmallReport
from compress.console import Console
from compress.environment import describe_cpu
from compress.errors import CompressError
from compress.storage.atomic_write import atomic_write

SETS = ("snips_intents", "sst2", "ag_news", "mrpc", "stsb", f"sst2{WITH_TEXTS}", f"ag_news{WITH_TEXTS}")
ROWS, TRIAL_ROWS = 8000, 200
BUDGET, TRIAL_BUDGET = 240, 20
MODEL2VEC = {"model2vec, 256 dimensions": 256, "model2vec, 128 dimensions": 128}
"""Its default, and one whose files are about as large as ours."""
COMPARED = "static/numpy-fp32"
"""The row that is compared with the better of both, row by row: the default student."""
OTHERS: dict[str, Callable[[Case], Entry]] = {
    **{name: lambda case, size=size: run_model2vec(case, size) for name, size in MODEL2VEC.items()},  # type: ignore[misc]
    "fastText": run_fasttext,
}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_students", description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS), help="(default: %(default)s)")
    parser.add_argument(
        "--rows", type=positive, help=f"of each role, at most (default: {ROWS}; {TRIAL_ROWS} in a trial)"
    )
    parser.add_argument("--seeds", type=positive, help="of students (default: 3; 1 in a trial)")
    parser.add_argument("--only", choices=("train", "time"), help="one of the two parts; timing needs an idle machine")
    parser.add_argument("--budget", type=positive, help=f"seconds of a timing session (default: {BUDGET})")
    parser.add_argument(
        "--out", type=Path, help="folder of the report (default: reports/small_students; none in a trial)"
    )
    parser.add_argument("--work", type=Path, help="folder of the runs, kept (default: a temporary one)")
    parser.add_argument("--trial", action="store_true", help="everything in small, to see that it runs")
    given = parser.parse_args(arguments)
    given.sets = chosen(parser, "--sets", given.sets, SETS)
    given.rows = given.rows or (TRIAL_ROWS if given.trial else ROWS)
    given.seeds = given.seeds or (1 if given.trial else 3)
    given.budget = given.budget or (TRIAL_BUDGET if given.trial else BUDGET)
    if given.out is None and not given.trial:
        given.out = Path("reports/small_students")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, then time it; 130 where it was interrupted."""
    given = parse(arguments)
    report = SmallReport(**beginning(command(given), given.trial), rows=given.rows)
    store, console = Store(report, given.out, page), Console("human")
    if store.resume():
        store.earlier = store.report.seconds or 0.0
        console.note(f"goes on with {len(store.report.entries)} stored results")
    return carry_out(store, console, lambda work: compare(given, work, store, console), show, given.work)


def compare(given: argparse.Namespace, work: Path, store: Store[SmallReport], console: Console) -> None:
    """Train all that has no result yet, seed by seed, and then time it set by set."""
    cases = [Case(name, seed, work, given.rows, given.trial) for seed in range(given.seeds) for name in given.sets]
    for case in cases if given.only != "time" else ():
        train(case, store, console)
    for case in cases if given.only != "train" else ():
        if case.seed == 0 and case.ours.exists:
            time_files(case, given, store, console)


def train(case: Case, store: Store[SmallReport], console: Console) -> None:
    """Run our recipe and the other tools on one set with one seed, unless their results are stored."""
    known = {each.key for each in store.report.entries if each.reason is None}
    if not case.ours.exists or f"{case.set}/{case.seed}/{COMPARED}" not in known:
        try:
            case.run()
        except CompressError as error:
            failed = Entry(set=case.set, seed=case.seed, contestant="ours", reason=error.message)
            add(store, [failed])
            console.note(f"{failed.key}: {error.message}")
            return
        add(store, list(case.entries()))
        console.note(f"[{store.seconds / 60:4.1f} min] {case.set}/{case.seed}: {len(store.report.of(case.set))} files")
    for name, attempt in OTHERS.items():
        if f"{case.set}/{case.seed}/{name}" in known:
            continue
        try:
            entry = attempt(case)
        except CompressError as error:
            entry = Entry(set=case.set, seed=case.seed, contestant=name, reason=error.message)
        add(store, [entry])
        console.note(f"[{store.seconds / 60:4.1f} min] {entry.key}: {entry.reason or f'{entry.score:.4f}'}")
    entries = {each.key: each for each in store.report.entries if each.score is not None}
    theirs = [entries[key] for name in MODEL2VEC if (key := f"{case.set}/{case.seed}/{name}") in entries]
    if theirs and (ours := entries[f"{case.set}/{case.seed}/{COMPARED}"]).versus_model2vec is None:
        best = max(theirs, key=lambda each: each.score or 0.0)
        versus = case.versus(COMPARED, stored_classes(case, best.contestant))
        add(store, [ours.model_copy(update={"versus_model2vec": versus})])


def add(store: Store[SmallReport], entries: Sequence[Entry]) -> None:
    """Store results, in place of earlier ones of the same name."""
    for made in entries:
        entry = made.model_copy(update={"processor": describe_cpu().model})
        known = {each.key for each in store.report.entries}
        stored = store.report.entries
        store.update(entries=in_place(stored, entry) if entry.key in known else (*stored, entry))


def time_files(case: Case, given: argparse.Namespace, store: Store[SmallReport], console: Console) -> None:
    """Time every file of the first seed; all seeds have the same shapes."""
    timed = case.timings(given.budget)
    for key, (latency, faster, faster_end_to_end) in timed.items():
        row = case.ours.report.row(key)
        entry = next((each for each in store.report.entries if each.key == f"{case.set}/0/{key}"), None)
        if row is None or entry is None or not latency.timed:
            continue
        model, full = latency.typical(), latency.typical("end_to_end")
        figures = {
            "milliseconds": model and model.value,
            "end_to_end": full and full.value,
            "faster": faster,
            "faster_end_to_end": faster_end_to_end,
            "rows_per_second": case.rows_per_second(row),
        }
        add(store, [entry.model_copy(update=figures)])
    console.note(f"[{store.seconds / 60:4.1f} min] {case.set}: {len(timed)} files timed")
    if given.out and (drawing := picture(store.report, case.set)):
        atomic_write(given.out / f"small_students-{case.set}.svg", drawing)


def show(report: SmallReport, console: Console) -> None:
    """Print the tables."""
    for name in report.sets:
        console.table(list(lines(report, name)), COLUMNS)
    console.table(list(goals(report)), GOALS)


def command(given: argparse.Namespace) -> str:
    """Return the options that decide a result, as typed; sets, seeds and parts can be run one after another."""
    return " ".join(
        ["python -m benchmarks.small_students", *(["--trial"] if given.trial else []), f"--rows {given.rows}"]
    )


if __name__ == "__main__":
    run(main)
