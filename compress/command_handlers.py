"""One handler a command: calls one function of the library and prints its result.

Imports are inside the handlers, so that every command loads only what it needs.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from compress.console import Console
from compress.errors import UsageError, nearest, pluralize

if TYPE_CHECKING:
    from compress.pipeline.run import Options
    from compress.pretrain.pretrain_report import PretrainReport


def init(options: argparse.Namespace, console: Console) -> None:
    """Write a recipe to fill in."""
    from compress.pipeline.commands.init_template import write_starter

    names = ("task", "train", "text", "label", "kind", "encoding", "teacher", "student", "cards")
    path = write_starter(options.path, **{name: getattr(options, name) for name in names})
    console.data({"recipe": str(path)}, f"{path} is written; next: compress plan {path}")


def label(options: argparse.Namespace, console: Console) -> None:
    """Label rows by a service, or say what that would cost."""
    from compress.label.label import dry_run
    from compress.label.label import label as label_rows
    from compress.label.label_task import load_label_recipe

    recipe = load_label_recipe(options.file, options.overrides)
    if options.dry_run:
        expected = dry_run(recipe, console)
        console.data(asdict(expected), expected.text)
        return
    target = options.to or Path("labels") / recipe.name
    info = label_rows(recipe, target, console, answered=options.answered, retry_refused=options.retry_refused)
    console.data({"folder": str(target), "service": info}, f"{target} holds {info.text}")


def ls(options: argparse.Namespace, console: Console) -> None:
    """List tasks, cards, recipes, losses, variants, runs or searches."""
    from compress.pipeline.commands.listing import LISTINGS, RUN_FILTERS
    from compress.search.search_folder import listed_searches

    lists = {**LISTINGS, "searches": listed_searches}
    given = [name for name in RUN_FILTERS if getattr(options, name) is not None]
    if given and options.what != "runs":
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{flags} has an effect on one list only: compress ls runs.")
    if options.what is None:
        names = {what: dict.fromkeys(row["name"] for row in rows(options)) for what, rows in lists.items()}
        console.table([{"what": what, "names": [*each]} for what, each in names.items()], ["what", "names"])
        return
    if options.what not in lists:
        raise UsageError(f"there is no list of '{options.what}'{nearest(options.what, lists)}")
    rows = list(lists[options.what](options))
    if not rows and console.format == "human":
        console.note(f"no {options.what} {'passes these filters' if given else 'here'}")
    console.table(rows)


def plan(options: argparse.Namespace, console: Console) -> None:
    """Show the long form of a recipe, the state and forecast of its steps, and what prevents a run."""
    from compress.pipeline.commands.plan_command import show_plan, show_pretrain_plan
    from compress.pipeline.commands.pretrain_run import PretrainOptions
    from compress.pipeline.run import prepare
    from compress.recipe.field_types import PRETRAINING
    from compress.recipe.load import is_of_kind

    if is_of_kind(Path(options.recipe), PRETRAINING):
        if options.smoke or options.calibrate:
            raise UsageError("--smoke and --calibrate are for recipes of tasks; this is a pretraining recipe.")
        planned_run = PretrainOptions(runs=options.runs, cards=tuple(options.cards))
        show_pretrain_plan(Path(options.recipe), options.overrides, planned_run, console)
        return
    planned = prepare(options.recipe, options.overrides, _options(options))
    show_plan(planned, _options(options), console, calibrated=options.calibrate, whole=options.all)


def run(options: argparse.Namespace, console: Console) -> None:
    """Run a recipe and show its ledger."""
    from compress.pipeline.run import execute, note_last_step, prepare
    from compress.report.show_report import show_report

    planned = prepare(options.recipe, options.overrides, _options(options))
    if options.dry_run:
        from compress.pipeline.commands.plan_command import show_plan

        show_plan(planned, _options(options), console, here=True, whole=options.verbose)
        return
    result = execute(planned, _options(options), console)
    note_last_step(planned, _options(options), result, console)
    if result.report is not None:
        explained = not options.smoke and not result.failed
        show_report(result.report, result.folder, console, whole=False, error_follows=explained)
    result.raise_for_failures()
    if not options.smoke:
        result.raise_for_gate(
            "student: {layers: 3} or larger shares in prune make it smaller; compress search RECIPE finds a shape"
        )


def search(options: argparse.Namespace, console: Console) -> None:
    """Search for the best model within a budget, and show what was compared and the ledger of what was trained."""
    from compress.report.show_report import show_report
    from compress.search.expected_plan import plan_search
    from compress.search.run_search import front_table
    from compress.search.run_search import search as run_search
    from compress.search.search_folder import SEARCH_FILE, WINNER_FILE
    from compress.search.search_recipes import budget_overrides

    overrides = [*options.overrides, *budget_overrides(options.budget, options.goal)]
    if options.dry_run:
        from compress.pipeline.commands.plan_command import show_plan

        limits = {"finalists": options.finalists, "minutes": options.minutes, "trials": options.tune}
        expected = plan_search(options.recipe, overrides, _options(options), **limits)
        show_plan(expected, _options(options), console, here=True, whole=options.verbose)
        return
    wanted = {"finalists": options.finalists, "minutes": options.minutes, "trials": options.tune, "ray": options.ray}
    found = run_search(options.recipe, overrides, _options(options), console, **wanted)
    if console.format == "json":
        console.data(found.info)
    elif found.result.report is not None:
        if console.format == "human":
            console.table(front_table(found.info), title="candidates, by estimated time")
        explained = not found.result.failed
        show_report(found.result.report, found.result.folder, console, whole=False, error_follows=explained)
        console.note(f"what was compared: {found.folder / SEARCH_FILE}")
    if found.info.winner:
        console.note(f"the winner's recipe: compress run {found.folder / WINNER_FILE}")
    found.result.raise_for_failures()
    found.result.raise_for_gate()


def pretrain(options: argparse.Namespace, console: Console) -> None:
    """Run a pretraining recipe and show what its model predicts of held-out text."""
    from compress.pipeline.commands.pretrain_run import PretrainOptions, run_pretrain

    ran = PretrainOptions(runs=options.runs, cards=tuple(options.cards), force=options.force)
    report = run_pretrain(options.recipe, options.overrides, ran, console)
    if report is not None:
        _show_pretrain(report, options.runs / report.name, console)


def _show_pretrain(report: PretrainReport, folder: Path, console: Console) -> None:
    """Show what a pretrained model predicts of held-out text, and where its model, report and cards are."""
    from compress.pipeline.commands.pretrain_run import MODEL_FOLDER
    from compress.pretrain.pretrain_report import REPORT_PAGE, tables

    if console.format == "json":
        console.data(report)
        return
    if console.format == "human":
        for table in tables(report):
            console.table(table.rows, table.columns, f"{report.name} on held-out text, with 95 % intervals")
        console.note(f"report: {folder / REPORT_PAGE}; its cards: --cards {folder}")
    console.line(str(folder / MODEL_FOLDER))


def clean(options: argparse.Namespace, console: Console) -> None:
    """Remove cached steps that no run uses."""
    from compress.pipeline.commands.clean import clean as remove

    rows = remove(options.runs, dry_run=options.dry_run)
    freed = sum(row["bytes"] for row in rows)
    verb = "would free" if options.dry_run else "freed"
    if console.format != "human" or rows:
        console.table(rows, ["folder", "bytes", "why"])
    console.note(f"{verb} {freed / 2**20:.1f} MiB in {pluralize(len(rows), 'folder')}")


def report(options: argparse.Namespace, console: Console) -> None:
    """Show a finished run's ledger again, and write its report pages again."""
    from compress.pipeline.commands.listing import run_folder
    from compress.pretrain.pretrain_report import read_pretrain_report
    from compress.report.pages.render import write_pages
    from compress.report.report_schema import read_report
    from compress.report.show_report import show_report
    from compress.report.winner_summary import run_addresses

    if len(options.runs_shown) > 1:
        from compress.pipeline.commands.compare_command import compare

        _open_page(compare(options.runs_shown, options.runs, console, options.to), options, console)
        return
    folder = run_folder(options.runs_shown[0], options.runs)
    if pretrained := read_pretrain_report(folder):
        _show_pretrain(pretrained, folder if folder.is_dir() else folder.parent, console)
        return
    finished, shown = read_report(folder), folder
    if folder.is_dir():
        has_winners = (folder / "winner").is_dir()
        write_pages(folder, finished, run_addresses(finished) if has_winners else {})
    if options.to:
        from compress.report.report_index import add_report

        shown = add_report(options.to, finished)
        console.note(f"report: {shown}; the index: {options.to / 'index.md'}")
    show_report(finished, folder, console)
    page = shown if shown.is_dir() else shown.parent
    _open_page(page / "report.html", options, console)


def _open_page(page: Path, options: argparse.Namespace, console: Console) -> None:
    """Open a page in the browser where that was asked for."""
    if not options.open:
        return
    import webbrowser

    if not page.is_file():
        raise UsageError(f"there is no page at {page}.")
    if not webbrowser.open(page.absolute().as_uri()):
        console.warn(f"no browser could be started; the page is {page}")


def bench(options: argparse.Namespace, console: Console) -> None:
    """Compare the speed of models."""
    from compress.measure.bench.bench_command import bench_and_show

    bench_and_show(options, console)


def probe(options: argparse.Namespace, console: Console) -> None:
    """Show what the layers and heads of models know and do."""
    from compress.pipeline.commands.probe_command import probe_and_show

    names = ("tags", "rows", "seed", "overrides", "cards")
    settings = {name: getattr(options, name) for name in names}
    probe_and_show(options.models, options.task, console, options.to, **settings)


def export(options: argparse.Namespace, console: Console) -> None:
    """Export a model folder, and quantize it if a method is given; or check an existing export."""
    from compress.export.comparison.parity_check import check_golden
    from compress.pipeline.commands.export_command import check_and_show, chosen_variants, export_all, export_folder
    from compress.variants import ALL_FORMATS

    if options.check:
        if options.formats or options.quantize or options.calibration or options.assets:
            raise UsageError("--check compares the export that is in OUT; the options that make one have no effect.")
        check_and_show(options.model, options.to, console)
        return
    variants = chosen_variants(options.formats, options.quantize)
    if options.calibration and not any(variant.quantizer for variant in variants):
        raise UsageError("--calibration has an effect on INT8 only; add --quantize METHOD.")
    if options.assets and all(variant.format != "web" for variant in variants):
        raise UsageError("--assets has an effect on the format web only, which reads npm packages.")
    files = {"calibration": options.calibration, "assets": options.assets}
    if len(variants) > 1 or ALL_FORMATS in options.formats:
        export_all(options.model, options.to, variants, named=options.formats, console=console, **files)
        return
    (variant,) = variants
    info = export_folder(options.model, options.to, variant, console=console, **files)
    name = info.variant.name if info.variant else "model"
    check = check_golden(options.to)
    result = {"folder": str(options.to), "variant": info.variant, "misses": check.misses}
    console.data(result, f"{options.to} holds {name}")
    check.raise_for_misses(options.to)
    console.note(check.verdict(options.to))


def publish(options: argparse.Namespace, console: Console) -> None:
    """Publish a finished run's winners."""
    from compress.pipeline.commands.listing import run_folder
    from compress.pipeline.steps.publish_step import Destination, publish_row, publish_winners
    from compress.publish.published_model import ALL
    from compress.publish.pull import pull as fetch
    from compress.publish.signatures import find_signer
    from compress.report.report_schema import read_report

    folder = run_folder(options.run, options.runs)
    finished = read_report(folder)
    name = finished.name if options.name is None else options.name
    to = Destination(options.to, name, options.version, find_signer(options.sign))
    if options.row:
        record = publish_row(folder, finished, options.row, to, console, options.target or finished.titles[0])
    else:
        record = publish_winners(folder, finished, to, console, options.target)
    address = to.address(record)
    if options.hub:
        from compress.publish.hub import push

        with tempfile.TemporaryDirectory(prefix="compress-push-") as scratch:
            whole = fetch(address, Path(scratch) / record.name, variant=ALL)
            console.note(f"pushed: {push(whole, options.hub, version=record.version)}")
    console.data({"published": address}, address)


def zoo(options: argparse.Namespace, console: Console) -> None:
    """List, show, compare and withdraw published models."""
    from compress.publish.zoo_command import COMMANDS

    COMMANDS[options.action](options, console)


def pull(options: argparse.Namespace, console: Console) -> None:
    """Download a published model."""
    from compress.publish.pull import pull as fetch
    from compress.publish.pull import read_pulled
    from compress.publish.signatures import trusted_keys

    keys = trusted_keys(options.key)
    target = fetch(options.source, options.to, variant=options.variant, update=options.update, keys=keys)
    pulled = read_pulled(target)
    signed = " and is signed by a trusted key" if keys else ""
    named = f" holds {pulled.version} ({pulled.variant});" if pulled and pulled.version else ":"
    console.data(
        {"folder": str(target), **(pulled.model_dump() if pulled else {})},
        f"{target}{named} every file has its published digest{signed}",
    )


def verify(options: argparse.Namespace, console: Console) -> None:
    """Check a published model's files, and the outputs of its exports."""
    from compress.publish.verify_command import verify_and_show

    if options.rows and not options.measure:
        raise UsageError("--rows has an effect with --measure only.")
    verify_and_show(options.model, console, options.key, measure=options.measure, rows=options.rows)


def predict(options: argparse.Namespace, console: Console) -> None:
    """Predict texts."""
    from compress.bulk.bulk_command import BulkOptions, is_table, predict_files, show_table
    from compress.bulk.bulk_job import Shard
    from compress.publish.pull import opened
    from compress.publish.verify import find_damage
    from compress.runtime.predict_command import predict_and_show
    from compress.runtime.predictor import Placement

    options.model = opened(options.model, warn=console.warn)
    if damage := find_damage(options.model):
        console.warn(f"{options.model} is not as it was published: {damage}. compress verify checks all of it.")
    placement = Placement(options.device, options.threads)
    files = options.file
    if files and options.to and all(Path(text).is_file() for text in options.texts):
        files, options.texts = [*files, *options.texts], []  # a pattern that the shell expanded
    bulk = BulkOptions(
        files=tuple(files),
        to=options.to,
        text=tuple(options.text),
        encoding=options.encoding,
        prefix=options.prefix,
        probabilities=options.probabilities,
        bad_rows=options.bad_rows,
        shard=Shard.parse(options.shard) if options.shard else None,
        merge=options.merge,
        replace=options.replace,
        workers=options.workers,
        batch=options.batch,
        placement=placement,
    )
    bulk.check(options.texts)
    if options.to:
        predict_files(options.model, bulk, console)
    elif files and is_table(files[0]):
        show_table(options.model, files[0], bulk, console)
    else:
        file = Path(files[0]) if files else None
        shown = {"batch": options.batch, "placement": placement, "every_class": options.probabilities}
        predict_and_show(options.model, options.texts, console, file=file, **shown)


def serve(options: argparse.Namespace, console: Console) -> None:
    """Serve models."""
    from compress.serve.server import ServeOptions, serve

    names = ("host", "port", "threads", "max_wait", "queue", "key_env", "watch", "device")
    serve(options.folders, ServeOptions(**{name: getattr(options, name) for name in names}), console)


def doctor(options: argparse.Namespace, console: Console) -> None:
    """Check what works on this machine."""
    from compress.environment import describe
    from compress.environment.doctor import doctor_rows

    machine = describe(options.runs, devices=True, hub=True)  # takes a few seconds
    console.table([asdict(row) for row in doctor_rows(machine)])


def _options(options: argparse.Namespace) -> Options:
    from compress.pipeline.run import Options

    given = ("runs", "begin", "until", "force", "smoke")
    return Options(cards=tuple(options.cards), **{name: vars(options)[name] for name in given if name in options})
