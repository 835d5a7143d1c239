"""`python -m benchmarks.formats`: one student in every format and precision that runs here."""

import argparse
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.formats.formats_page import COLUMNS, SESSIONS, page, table_row, write_docs
from benchmarks.formats.formats_results import Entry, FormatsReport
from benchmarks.int8.int8_files import Models, make_models, variant_builder
from benchmarks.int8.int8_results import TORCH
from benchmarks.int8.int8_timing import score
from benchmarks.report_store import Store, beginning, carry_out, in_place, positive, run
from compress.console import Console
from compress.errors import CompressError
from compress.measure.bench import bench
from compress.measure.resources.footprint import footprint
from compress.recipe.measure_schema import Measure, Target
from compress.storage.atomic_write import atomic_write
from compress.variants import VARIANTS, Variant

MODEL = "student"
ROWS, TRIAL_ROWS = 8000, 200
BUDGET = 120
TRIAL = Measure(rounds=3, processes=1, seconds=0.05)
"""Without a budget: all formats' processes together may take longer to start than any that is short."""
REPORT, DOCS = Path("reports/formats"), Path("docs/exports.md")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats", description=__doc__)
    parser.add_argument(
        "--rows", type=positive, help=f"of each role, at most (default: {ROWS}; {TRIAL_ROWS} in a trial)"
    )
    parser.add_argument("--budget", type=positive, help=f"seconds of a session (default: {BUDGET})")
    parser.add_argument("--out", type=Path, help=f"folder of the report (default: {REPORT}; none in a trial)")
    parser.add_argument("--work", type=Path, help="folder of the models and files, kept (default: a temporary one)")
    parser.add_argument("--trial", action="store_true", help="a small run that decides nothing")
    parser.add_argument("--draw", action="store_true", help=f"write the table of {REPORT} into {DOCS}, and stop")
    given = parser.parse_args(arguments)
    given.rows = given.rows or (TRIAL_ROWS if given.trial else ROWS)
    given.budget = given.budget or BUDGET
    if given.out is None and not given.trial:
        given.out = REPORT
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; 130 where it was interrupted."""
    given = parse(arguments)
    if given.draw:
        stored = (REPORT / "report.json").read_text(encoding="utf-8")
        write_docs(FormatsReport.model_validate_json(stored), DOCS)
        return 0
    report = FormatsReport(**beginning(command(given), given.trial), rows=given.rows)
    store, console = Store(report, given.out, page), Console("human")
    return carry_out(store, console, lambda work: compare(given, work, store, console), show, given.work)


def compare(given: argparse.Namespace, work: Path, store: Store[FormatsReport], console: Console) -> None:
    """Build and score the student in every format, and time them all in turns, storing each result."""
    models = make_models(work / f"sst2-{given.rows}", given.rows)
    texts = work / "texts.txt"
    atomic_write(texts, "\n".join(str(row["text"]) for row in models.data.rows("test")) + "\n")
    files = make_files(models, work, store, console)
    for length, title in SESSIONS.items():
        target = Target(device="cpu", threads=1, batch=1, length=length)
        own = texts if length == "data" else None
        arguments = {f"{path}:torch-fp32" if name == TORCH else str(path): name for name, path in files.items()}
        settings = TRIAL if given.trial else Measure(budget=given.budget)
        done = bench(list(arguments), target, texts=own, settings=settings)
        for argument, timed in done.targets[0].models.items():
            entry = next(each for each in store.report.entries if each.variant == arguments[argument])
            latency = timed.latency
            if latency.model is None:
                facts: Mapping[str, object] = {"reason": latency.reason}
            else:
                facts = {"milliseconds": {**entry.milliseconds, title: latency.model.p50.value}}
            if length == "data":
                memory = latency.resident_memory
                facts = {**facts, "load_seconds": latency.load_seconds, "memory_megabytes": memory and memory / 1e6}
            store.update(entries=in_place(store.report.entries, entry.model_copy(update=facts)))
        console.note(f"[{store.seconds / 60:4.1f} min] {title}")


def make_files(models: Models, work: Path, store: Store[FormatsReport], console: Console) -> dict[str, Path]:
    """Return the student in PyTorch and every variant that was built, scored; others are stored with the reason."""
    source = models.folders[MODEL]
    build, files = variant_builder(models, MODEL, work, Console("quiet")), {TORCH: source}
    accuracy, expected = score(source, models.data, source)
    size = footprint(source).bytes_weights / 1e6
    first = Entry(variant=TORCH, format="torch", precision="fp32", megabytes=size, score=accuracy, agreement=1.0)
    store.update(entries=(first,))
    for variant in compared_variants():
        entry = Entry(variant=variant.name, format=variant.format, precision=variant.precision)
        try:
            require_installed(variant)
            file = build(variant)
            accuracy, classes = score(file, models.data, source)
            size = footprint(file).bytes_weights / 1e6
            agreement = float((classes == expected).mean())
            entry = entry.model_copy(update={"megabytes": size, "score": accuracy, "agreement": agreement})
            files[variant.name] = file
        except CompressError as error:
            entry = entry.model_copy(update={"reason": error.message})
        store.update(entries=(*store.report.entries, entry))
        console.note(f"[{store.seconds / 60:4.1f} min] {entry.key}: {entry.reason or f'{entry.score:.4f}'}")
    return files


def compared_variants() -> Iterator[Variant]:
    """Yield the first variant of each format and precision that are files of their own, and run on the CPU."""
    seen = set()
    for variant in VARIANTS.values():
        key = variant.format, variant.precision
        if variant.builder and "cpu" in variant.devices and key not in seen:
            seen.add(key)
            yield variant


def require_installed(variant: Variant) -> None:
    """Refuse a variant whose builder or runtime is not installed, naming what is missing."""
    needed = {**variant.build_modules, **variant.run_modules}
    missing = [module for module in needed if importlib.util.find_spec(module.partition(".")[0]) is None]
    if missing:
        extra = needed[missing[0]]
        raise CompressError(f"not installed: {', '.join(missing)}" + (f" (extra {extra})" if extra else ""))


def show(report: FormatsReport, console: Console) -> None:
    """Print the table."""
    console.table([table_row(entry) for entry in report.entries], COLUMNS)


def command(given: argparse.Namespace) -> str:
    """Return the options as they could be typed."""
    words = ["python -m benchmarks.formats", *(["--trial"] if given.trial else []), f"--rows {given.rows}"]
    return " ".join([*words, *([f"--budget {given.budget}"] if given.budget != BUDGET else [])])


if __name__ == "__main__":
    run(main)
