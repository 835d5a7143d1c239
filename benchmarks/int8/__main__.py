"""`python -m benchmarks.int8`: INT8 files of MiniLM and its students, ours and those of other tools."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.int8.int8_files import STEPS, Models, make_models, our_files, their_files
from benchmarks.int8.int8_page import COLUMNS, GOALS, goals, page, picture, table_row
from benchmarks.int8.int8_results import TORCH, Entry, Int8Report
from benchmarks.int8.int8_timing import THREADS, score, sessions, time_files, with_quality
from benchmarks.report_store import Store, beginning, carry_out, chosen, in_place, positive, run
from compress.console import Console
from compress.errors import CompressError
from compress.storage.atomic_write import atomic_write

ALL_THREADS = tuple(map(str, THREADS))
ROWS, TRIAL_ROWS = 8000, 200
BUDGET, TRIAL_BUDGET = 60, 2


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.int8", description=__doc__)
    parser.add_argument("--models", default=",".join(STEPS), help="(default: %(default)s)")
    parser.add_argument(
        "--rows", type=positive, help=f"of each role, at most (default: {ROWS}; {TRIAL_ROWS} in a trial)"
    )
    parser.add_argument("--threads", default=",".join(ALL_THREADS), help="numbers of threads (default: %(default)s)")
    parser.add_argument("--budget", type=positive, help=f"seconds of a session (default: {BUDGET})")
    parser.add_argument("--ours", action="store_true", help="without the other tools, which are installed separately")
    parser.add_argument("--out", type=Path, help="folder of the report (default: reports/int8; none in a trial)")
    parser.add_argument("--work", type=Path, help="folder of the models and files, kept (default: a temporary one)")
    parser.add_argument("--trial", action="store_true", help="a small run that decides nothing")
    given = parser.parse_args(arguments)
    given.models = chosen(parser, "--models", given.models, tuple(STEPS))
    given.threads = tuple(map(int, chosen(parser, "--threads", given.threads, ALL_THREADS)))
    given.rows = given.rows or (TRIAL_ROWS if given.trial else ROWS)
    given.budget = given.budget or (TRIAL_BUDGET if given.trial else BUDGET)
    if given.out is None and not given.trial:
        given.out = Path("reports/int8")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; 130 where it was interrupted."""
    given = parse(arguments)
    report = Int8Report(**beginning(command(given), given.trial), rows=given.rows)
    store, console = Store(report, given.out, page), Console("human")
    return carry_out(store, console, lambda work: compare(given, work, store, console), show, given.work)


def compare(given: argparse.Namespace, work: Path, store: Store[Int8Report], console: Console) -> None:
    """Make, score and time every file of every model, storing each result."""
    models = make_models(work / f"sst2-{given.rows}", given.rows)
    texts = work / "texts.txt"
    atomic_write(texts, "\n".join(str(row["text"]) for row in models.data.rows("test")) + "\n")
    for model in given.models:
        files = make_files(given, models, model, work, store, console)
        for title, target in sessions(given.threads):
            times, shares = time_files(files, target, texts, given.budget)
            for name in files:
                entry = store.report.entry(model, name)
                assert entry
                timed = {"milliseconds": _with(entry.milliseconds, title, times.get(name))}
                timed |= {"rate_shares": _with(entry.rate_shares, title, shares.get(name))}
                store.update(entries=in_place(store.report.entries, entry.model_copy(update=timed)))
            console.note(f"[{store.seconds / 60:4.1f} min] {model}: {title}")
        if given.out and (drawing := picture(store.report, model)):
            atomic_write(given.out / f"int8-{model}.svg", drawing)


def make_files(
    given: argparse.Namespace, models: Models, model: str, work: Path, store: Store[Int8Report], console: Console
) -> dict[str, Path]:
    """Return every file of a model that could be made, scored; the others are stored with the reason."""
    tokenizer, files = models.folders[model], {}
    expected = np.empty(0, dtype=np.int64)
    theirs = () if given.ours else their_files(models, model, work)
    for name, build in (*our_files(models, model, work, Console("quiet")), *theirs):
        entry = Entry(model=model, file=name)
        try:
            file = build()
            if name == TORCH:
                expected = score(file, models.data, tokenizer)[1]
            entry = with_quality(entry, file, models.data, tokenizer, expected)
            files[name] = file
        except CompressError as error:
            entry = entry.model_copy(update={"reason": error.message})
        store.update(entries=(*store.report.entries, entry))
        console.note(f"[{store.seconds / 60:4.1f} min] {entry.key}: {entry.reason or f'{entry.score:.4f}'}")
    return files


def _with(figures: Mapping[str, float], title: str, value: float | None) -> dict[str, float]:
    return {**figures} if value is None else {**figures, title: value}


def show(report: Int8Report, console: Console) -> None:
    """Print the tables."""
    console.table([table_row(report, entry) for entry in report.entries], ("model", *COLUMNS))
    console.table(list(goals(report)), GOALS)


def command(given: argparse.Namespace) -> str:
    """Return the options as they could be typed."""
    words = ["python -m benchmarks.int8", *(["--trial"] if given.trial else []), f"--rows {given.rows}"]
    words += [f"--models {','.join(given.models)}"] if given.models != tuple(STEPS) else []
    words += [f"--threads {','.join(map(str, given.threads))}"] if given.threads != THREADS else []
    words += [f"--budget {given.budget}"] if given.budget != BUDGET else []
    return " ".join([*words, *(["--ours"] if given.ours else [])])


if __name__ == "__main__":
    run(main)
