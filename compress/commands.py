"""What each command does: call one function of the library, print what it returns.

Imports are made where they are used, so that every command loads only what it needs.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compress.console import Console, duration
from compress.errors import DataError, UsageError, nearest

if TYPE_CHECKING:
    from compress.pipeline.calibrate import Calibrated
    from compress.pipeline.graph import Plan
    from compress.pipeline.run import Options
    from compress.report.result import Report


def init(options: argparse.Namespace, console: Console) -> None:
    """Write a recipe to fill in."""
    from compress.pipeline.starter import write_starter

    path = write_starter(
        options.path,
        task=options.task,
        train=options.train,
        text=options.text,
        label=options.label,
        kind=options.kind,
        teacher=options.teacher,
        student=options.student,
        cards=options.cards,
    )
    console.data({"recipe": str(path)}, f"{path} is written; next: compress plan {path}")


def ls(options: argparse.Namespace, console: Console) -> None:
    """List what there is."""
    from compress.pipeline.listing import LISTINGS, listing

    if options.what is None:
        rows = [{"what": what, "names": [row["name"] for row in listing(what, options)]} for what in LISTINGS]
        console.table(rows, ["what", "names"])
        return
    if options.what not in LISTINGS:
        raise UsageError(f"there is no list of '{options.what}'{nearest(options.what, LISTINGS)}")
    rows = listing(options.what, options)
    if not rows and console.format == "human":
        console.note(f"no {options.what} here")
    console.table(rows)


def plan(options: argparse.Namespace, console: Console) -> None:
    """Show the long form of a recipe and the state and forecast of its steps."""
    from compress.pipeline.preview import preview, shown_step
    from compress.pipeline.run import prepare
    from compress.recipe.load import dump_recipe

    made = prepare(options.recipe, options.overrides, _options(options))
    calibrated = _calibrated(made, options, console)
    rows = preview(made, _options(options), calibrated)
    if console.format == "json":
        console.data({"recipe": made.recipe.model_dump(mode="json"), "steps": rows})
        return
    if console.format == "human":
        console.line(dump_recipe(made.recipe))
    console.table([shown_step(row) for row in rows], ["step", "state", "takes", "memory", "disk", "basis"])
    known = [row["seconds"] for row in rows if row["state"] != "stands" and row["seconds"] is not None]
    unknown = sum(row["state"] != "stands" and row["seconds"] is None for row in rows)
    rest = f", and {unknown} steps that have not run here before" if unknown else ""
    console.note(f"estimate: {duration(sum(known))}{rest}; nothing here is more than an estimate")
    for title, reason in made.missing_targets.items():
        console.warn(f"target {title} will not be measured: {reason}")


def _calibrated(made: Plan, options: argparse.Namespace, console: Console) -> Mapping[str, Calibrated]:
    """What a few updates of each training tell, where they are asked for."""
    if not getattr(options, "calibrate", False):
        return {}
    from compress.pipeline.calibrate import calibrate

    return calibrate(made, _options(options), console)


def run(options: argparse.Namespace, console: Console) -> None:
    """Run a recipe and show its ledger."""
    from compress.pipeline.run import execute, prepare

    if options.dry_run:
        from compress.pipeline.run import check_only

        check_only(prepare(options.recipe, options.overrides, _options(options)), _options(options), console)
        plan(options, console)
        return
    result = execute(prepare(options.recipe, options.overrides, _options(options)), _options(options), console)
    if result.report is not None:
        _show(result.report, result.folder, console)
    result.raise_for_failures()
    if not options.smoke:
        result.raise_for_gate()


def clean(options: argparse.Namespace, console: Console) -> None:
    """Remove steps that no run names."""
    from compress.pipeline.clean import clean as remove

    rows = remove(options.runs, dry_run=options.dry_run)
    freed = sum(row["bytes"] for row in rows)
    verb = "would free" if options.dry_run else "freed"
    if console.format != "human" or rows:
        console.table(rows, ["folder", "bytes", "why"])
    console.note(f"{verb} {freed / 2**20:.1f} MiB in {len(rows)} folders")


def report(options: argparse.Namespace, console: Console) -> None:
    """Show a finished run's ledger again and draw its report anew."""
    from compress.pipeline.listing import run_folder
    from compress.report.render import write_pages
    from compress.report.result import read_report

    folder = run_folder(options.run, options.runs)
    facts = read_report(folder)
    if folder.is_dir():
        write_pages(folder, facts)
    _show(facts, folder, console)


def bench(options: argparse.Namespace, console: Console) -> None:
    """Time models side by side."""
    from compress.measure.bench.command import bench_and_show

    names = ("targets", "grid", "callers", "rounds", "seconds", "budget", "texts", "against", "output", "limits")
    bench_and_show(options.models, console, **{name: getattr(options, name) for name in names})


def export(options: argparse.Namespace, console: Console) -> None:
    """Export a model folder, and quantize it if asked."""
    from compress.pipeline.convert import export_folder

    info = export_folder(options.model, options.to, options.form, options.quantize, console=console)
    name = info.variant.name if info.variant else "model"
    console.data({"folder": str(options.to), "variant": info.variant}, f"{options.to} holds {name}")


def publish(options: argparse.Namespace, console: Console) -> None:
    """Publish a finished run's winner."""
    from compress.pipeline.listing import run_folder
    from compress.pipeline.winners import publish_winner
    from compress.recipe.schema import Publish
    from compress.report.result import read_report

    folder = run_folder(options.run, options.runs)
    facts = read_report(folder)
    target = options.target or next((verdict.target for verdict in facts.verdicts if verdict.winner), facts.titles[0])
    place = publish_winner(folder, facts, Publish(to=options.to, name=options.name), console, target)
    if options.hub and place:
        from compress.publish.hub import push

        console.note(f"pushed: {push(place, options.hub)}")
    console.data({"published": str(place)}, str(place))


def pull(options: argparse.Namespace, console: Console) -> None:
    """Fetch a published model."""
    from compress.publish.verify import pull as fetch

    place = fetch(options.source, options.to or Path(options.source.rstrip("/").rpartition("/")[2]))
    console.data({"folder": str(place)}, f"{place}: every file has its published digest")


def verify(options: argparse.Namespace, console: Console) -> None:
    """Check a published model's files."""
    from compress.publish.verify import verify as check

    count = check(options.model)
    console.data(
        {"folder": str(options.model), "files": count}, f"{options.model}: {count} files have their published digests"
    )


def predict(options: argparse.Namespace, console: Console) -> None:
    """Texts in, answers out."""
    from compress.runtime.predictor import Place
    from compress.runtime.text import TextModel, read_texts

    model = TextModel.open(options.model, Place(options.device, options.threads))
    parts = len(model.task.text)
    given = _given_texts(options, parts, open_end=model.kind.open_end)
    source, empty = None if options.texts else str(options.file or "stdin"), list[str]()
    for batch in read_texts(given, options.batch, several=parts > 1, source=source, empty=empty.append):
        places, texts = zip(*batch, strict=True)
        for text, answer in zip(texts, model.predict(texts, options.batch, places), strict=True):
            if console.format == "json":
                console.jsonl({"text": text, **answer})
            else:
                console.line(_told(answer))
    if empty:
        lines = "1 line holds no text and has" if len(empty) == 1 else f"{len(empty):,} lines hold no text and have"
        console.warn(f"{lines} no answer; the first: {empty[0]}.")


def _told(answer: Mapping[str, object]) -> str:
    """An answer's fields in one line; those that hold nothing are no answer, and said once."""
    fields = [_shown(value) for value in answer.values() if value is not None]
    return "\t".join(fields if len(fields) == len(answer) else ["no answer", *fields])


def _shown(value: object) -> str:
    """One field of an answer: a name, a number, several of them, or several with their own fields (entities)."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(entry)}" for name, entry in value.items())
    if isinstance(value, (list, tuple)):
        between = "; " if any(isinstance(each, dict) for each in value) else ", "
        return between.join(map(_shown, value)) or "none"
    return str(value)


def _given_texts(options: argparse.Namespace, parts: int, *, open_end: bool) -> Iterable[str]:
    """Texts as typed, else the lines of a file or of stdin; what is read together has tabs between.

    Where a model reads several, words without tabs are taken so many at a time, or all of them together where there
    may be any number (a question and its choices, a query and its candidates).
    """
    typed: list[str] = options.texts
    if typed and options.file:
        raise UsageError(f"texts are typed or read from --file, not both; got {len(typed)} typed and {options.file}.")
    if not typed:
        return _lines(options.file) if options.file else _stdin_lines()
    for number, text in enumerate(typed, start=1):
        if not text.isprintable() and any("\udc80" <= letter <= "\udcff" for letter in text):
            raise UsageError(f"text {number} is not UTF-8.")
    if parts == 1 or len(typed) == 1 or any("\t" in text for text in typed):
        return typed
    if open_end:
        return ["\t".join(typed)]
    if len(typed) % parts:
        raise UsageError(f"this model reads {parts} texts at a time; got {len(typed)}, expected a multiple of {parts}.")
    return ["\t".join(typed[start : start + parts]) for start in range(0, len(typed), parts)]


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig") as stream:
            yield from stream
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} cannot be read: byte 0x{error.object[error.start]:02x} is not UTF-8") from error


def _stdin_lines() -> Iterator[str]:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    try:
        yield from sys.stdin
    except UnicodeDecodeError as error:
        raise DataError(f"stdin cannot be read: byte 0x{error.object[error.start]:02x} is not UTF-8") from error


def doctor(options: argparse.Namespace, console: Console) -> int:
    """Say what works here and what does not."""
    from compress.doctor import doctor_rows

    rows = doctor_rows(options.runs)
    console.table([{"check": row.check, "value": row.value, "ok": row.ok, "remedy": row.remedy} for row in rows])
    return 0


def _show(report: Report, folder: Path, console: Console) -> None:
    """The ledger of each target, then the winners."""
    from compress.report.tables import ledger

    if console.format == "json":
        console.data(report)
        return
    if console.format == "human":
        for target in report.targets:
            table = ledger(report, target.title)
            console.table(table.rows, table.columns, title=f"{report.name} on {target.title}")
    run = folder if folder.is_dir() else folder.parent
    for verdict in report.verdicts:
        place = run / "winner" / verdict.target
        told = f"{verdict.target}: {verdict.winner or 'no winner'}: {verdict.why}"
        console.line(told if console.format == "human" else str(place if verdict.winner else ""))
    for remark in report.remarks:
        console.note(remark)
    if folder.is_dir():
        console.note(f"report: {folder / 'report.html'}")


def _options(options: argparse.Namespace) -> Options:
    from compress.pipeline.run import Options

    return Options(
        runs=options.runs,
        cards=tuple(options.cards),
        begin=getattr(options, "begin", None),
        until=getattr(options, "until", None),
        force=getattr(options, "force", False),
        smoke=options.smoke,
    )


COMMANDS: dict[str, Callable[[argparse.Namespace, Console], int | None]] = {
    "init": init,
    "ls": ls,
    "plan": plan,
    "run": run,
    "clean": clean,
    "report": report,
    "bench": bench,
    "export": export,
    "publish": publish,
    "pull": pull,
    "verify": verify,
    "predict": predict,
    "doctor": doctor,
}
