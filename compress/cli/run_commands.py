"""Commands that make models: their options, and what they do."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from compress.cli.arguments import AddCommand, count, latency, size
from compress.console import Console
from compress.errors import UsageError, nearest, pluralize

if TYPE_CHECKING:
    from compress.pipeline.run import Options


def _recipe(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("recipe", help="a recipe file, or the name of a shipped one (compress ls recipes)")
    sub.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="such as seed=5")
    sub.add_argument("--smoke", action="store_true", help="test every step on a random model and a few rows")


def _verbose(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--verbose", action="store_true", help="show everything that goes to log.txt")


def add_init(command: AddCommand) -> None:
    """Add `compress init`."""
    sub = command("init", "write a recipe to fill in", init)
    sub.add_argument("path", nargs="?", type=Path, default=Path("recipe.yaml"))
    sub.add_argument("--task", help="a named task (compress ls tasks)")
    sub.add_argument("--train", metavar="FILE", help="your rows: csv, tsv, jsonl or parquet")
    sub.add_argument("--text", action="append", metavar="COLUMN", help="the column of texts; twice for sentence pairs")
    sub.add_argument("--label", metavar="COLUMN", help="the column of labels")
    sub.add_argument("--kind", help="the kind of task (compress ls kinds)")
    sub.add_argument("--encoding", metavar="NAME", help="of the file, where it is not UTF-8: cp1252, utf-16 …")
    sub.add_argument("--teacher", default="minilm-l6", help="a card, a folder or a hub id")
    sub.add_argument("--student", help="a card, a folder or a hub id; without it the teacher is pruned")


def init(options: argparse.Namespace, console: Console) -> None:
    """Write a recipe to fill in."""
    from compress.pipeline.commands.init_template import write_starter

    names = ("task", "train", "text", "label", "kind", "encoding", "teacher", "student", "cards")
    path = write_starter(options.path, **{name: getattr(options, name) for name in names})
    console.data({"recipe": str(path)}, f"{path} is written; next: compress plan {shlex.quote(str(path))}")


def add_label(command: AddCommand) -> None:
    """Add `compress label`."""
    sub = command("label", "label rows by a service with OpenAI's interface, as data that a recipe reads", label)
    sub.add_argument("file", type=Path, help="what to label, and by which service (docs/labelling.md)")
    sub.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="such as limit=5"
    )
    sub.add_argument("--to", type=Path, metavar="DIR", help="the folder to write; by default labels/NAME")
    mode = sub.add_mutually_exclusive_group()
    mode.add_argument("--dry-run", action="store_true", help="say how many requests it takes and what they cost")
    mode.add_argument("--answered", action="store_true", help="send nothing; write the rows that are answered already")
    mode.add_argument("--retry-refused", action="store_true", help="ask again about texts that the service refused")


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


def add_ls(command: AddCommand) -> None:
    """Add `compress ls`."""
    sub = command("ls", "list tasks, cards, recipes, losses, variants, perturbations, runs or searches", ls)
    sub.add_argument("what", nargs="?", help="one of these; all by default")
    runs = sub.add_argument_group("runs")
    runs.add_argument("--task", metavar="NAME", help="of this task")
    runs.add_argument("--target", metavar="TITLE", help="on this target")
    runs.add_argument("--min-score", type=float, metavar="SCORE", help="such as 0.9")
    runs.add_argument("--max-p50", type=latency, metavar="TIME", help="such as 2ms")
    runs.add_argument("--max-size", type=size, metavar="SIZE", help="such as 5MB")
    runs.add_argument("--sort", choices=("name", "score", "p50", "size", "date"), help="the best, or newest, first")


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


def add_plan(command: AddCommand) -> None:
    """Add `compress plan`."""
    sub = command("plan", "list what a recipe does, and about how long each stage takes", plan)
    _recipe(sub)
    sub.add_argument("--all", action="store_true", help="every default of the recipe, and each step with its basis")
    sub.add_argument("--calibrate", action="store_true", help="prepare the data and try a few updates of each training")


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


def add_run(command: AddCommand) -> None:
    """Add `compress run`."""
    sub = command("run", "run a recipe; steps that are up to date are skipped", run)
    _recipe(sub)
    sub.add_argument(
        "--from",
        metavar="STEP",
        dest="begin",
        help="run this step (compress plan RECIPE --all lists them) and all that depend on it again",
    )
    sub.add_argument("--until", metavar="STEP", help="stop after this step")
    _verbose(sub)
    sub.add_argument("--force", action="store_true", help="run every step again")
    sub.add_argument("--dry-run", action="store_true", help="check everything and print the plan; run nothing")


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


def add_search(command: AddCommand) -> None:
    """Add `compress search`."""
    sub = command("search", "find the best model within a budget of time and size, and its recipe", search)
    sub.add_argument("recipe", help="a recipe file, or the name of a shipped one (compress ls recipes)")
    sub.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="such as seed=5")
    sub.add_argument("--budget", default="", metavar="LIMITS", help="p50=0.5ms,size=5MB,drop=0.015 (docs/searching.md)")
    sub.add_argument("--goal", choices=("speed", "size", "score"), help="what to improve within it (speed)")
    about = "parts of the shared student that are trained on, beside static and conv, up to 20 (6)"
    limit = "what may be taken for it: fewer finalists, by forecast"
    sub.add_argument("--minutes", type=partial(count, most=10_000), metavar="N", help=limit)
    trials = "trainings that try other settings of the finalists' training: rate, temperature, losses (extra search)"
    sub.add_argument("--tune", type=partial(count, most=500), default=0, metavar="N", help=trials)
    cluster = "train the finalists on a Ray cluster that shares the folder of runs: host:port, or auto"
    sub.add_argument("--ray", metavar="ADDRESS", help=cluster)
    sub.add_argument("--finalists", type=partial(count, most=20), default=6, metavar="N", help=about)
    _verbose(sub)
    sub.add_argument("--dry-run", action="store_true", help="say about what it would do and take; run nothing")


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
    found.result.raise_for_gate("--finalists 12 trains more parts, --goal size prefers small ones")


def add_pretrain(command: AddCommand) -> None:
    """Add `compress pretrain`."""
    sub = command("pretrain", "make an encoder from texts, or adapt one to them, for recipes to start from", pretrain)
    sub.add_argument("recipe", help="a pretraining recipe file (docs/pretraining.md)")
    sub.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="such as seed=5")
    sub.add_argument("--force", action="store_true", help="run every step again")
    _verbose(sub)


def pretrain(options: argparse.Namespace, console: Console) -> None:
    """Run a pretraining recipe and show what its model predicts of held-out text."""
    from compress.pipeline.commands.pretrain_run import PretrainOptions, run_pretrain, show_pretrained

    ran = PretrainOptions(runs=options.runs, cards=tuple(options.cards), force=options.force)
    report = run_pretrain(options.recipe, options.overrides, ran, console)
    if report is not None:
        show_pretrained(report, options.runs / report.name, console)


def add_clean(command: AddCommand) -> None:
    """Add `compress clean`."""
    sub = command("clean", "remove cached steps that no run uses", clean)
    sub.add_argument("--dry-run", action="store_true", help="list them, remove nothing")


def clean(options: argparse.Namespace, console: Console) -> None:
    """Remove cached steps that no run uses."""
    from compress.pipeline.commands.clean import clean as remove

    rows = remove(options.runs, dry_run=options.dry_run)
    freed = sum(row["bytes"] for row in rows)
    verb = "would free" if options.dry_run else "freed"
    if console.format != "human" or rows:
        console.table(rows, ["folder", "bytes", "why"])
    console.note(f"{verb} {freed / 2**20:.1f} MiB in {pluralize(len(rows), 'folder')}")


def _options(options: argparse.Namespace) -> Options:
    from compress.pipeline.run import Options

    given = ("runs", "begin", "until", "force", "smoke")
    return Options(cards=tuple(options.cards), **{name: vars(options)[name] for name in given if name in options})
