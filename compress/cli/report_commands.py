"""Commands that show and compare what was made and measured."""

import argparse
from functools import partial
from pathlib import Path

from compress.cli.arguments import LARGEST_SEED, AddCommand, count
from compress.console import Console
from compress.errors import UsageError
from compress.formats import describe_bare_files


def add_report(command: AddCommand) -> None:
    """Add `compress report`."""
    sub = command("report", "show a finished run's results again, and its pages; or runs side by side", report)
    sub.add_argument("runs_shown", nargs="+", metavar="RUN", help="a run's name or folder, or a report.json")
    sub.add_argument("--open", action="store_true", help="open the page in the browser")
    about = "a run: into DIR/NAME, with the index of all reports there; several: the page that compares them, into DIR"
    sub.add_argument("--to", type=Path, metavar="DIR", help=about)


def report(options: argparse.Namespace, console: Console) -> None:
    """Show a finished run's ledger again, and write its report pages again."""
    from compress.pipeline.commands.listing import run_folder
    from compress.pipeline.commands.pretrain_run import show_pretrained
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
        if options.to or options.open:
            option = "--to" if options.to else "--open"
            raise UsageError(f"{option} is of reports of runs, and {options.runs_shown[0]} is a pretraining.")
        show_pretrained(pretrained, folder if folder.is_dir() else folder.parent, console)
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


def add_bench(command: AddCommand) -> None:
    """Add `compress bench`."""
    sub = command("bench", f"time any models side by side: folders, hub ids, {describe_bare_files()} files", bench)
    sub.add_argument("models", nargs="+", metavar="MODEL[:VARIANT]", help="ratios are to the first")
    target = "DEVICE[,threads=N][,batch=N][,length=N]"
    sub.add_argument("--target", action="append", default=[], dest="targets", metavar=target, help="may be repeated")
    sub.add_argument("--against", metavar="MODEL", help="compute ratios to this model")
    sub.add_argument("--texts", type=Path, metavar="FILE", help="one text a line: time their lengths, and end to end")
    sub.add_argument("--grid", action="append", default=[], metavar="KEY=N,N,…", help="such as batch=1,8,32")
    sub.add_argument("--callers", metavar="N,N,…", help="throughput and latency with this many concurrent callers")
    sub.add_argument("--budget", metavar="30s", help="time limit of a session; the precision reached is reported")
    sub.add_argument("--rounds", type=int, metavar="N", help="rounds of a session, at least 3, instead of a budget")
    sub.add_argument("--seconds", type=float, metavar="S", help="length of each model's turn in a round, above 0")
    sub.add_argument("--limits", action="store_true", help="compare with this machine's limits")
    sub.add_argument("--output", type=Path, metavar="FILE.json", help="also write every figure to this file")


def bench(options: argparse.Namespace, console: Console) -> None:
    """Compare the speed of models."""
    from compress.measure.bench.bench_command import bench_and_show
    from compress.measure.bench.parse_options import split_variant
    from compress.publish.pull import checked_model

    for index, (model, variant) in enumerate(map(split_variant, options.models)):
        checked = checked_model(model, console.warn)
        options.models[index] = checked if variant is None else f"{checked}:{variant}"
    bench_and_show(options, console)


def add_probe(command: AddCommand) -> None:
    """Add `compress probe`."""
    sub = command("probe", "what each layer and head knows and does, and what training or pruning changed", probe)
    sub.add_argument("models", nargs="+", metavar="MODEL", help="cards, folders or hub ids; each beside the one before")
    sub.add_argument(
        "--task",
        action="append",
        required=True,
        metavar="RECIPE|TASK",
        help="a recipe, a named task, length, word-content, word-order, punctuation, or surface: all four; repeatable",
    )
    sub.add_argument("--tags", action="append", default=[], metavar="COLUMN", help="also a column of tags of words")
    sub.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="of the recipe")
    sub.add_argument("--rows", type=int, default=5_000, metavar="N", help="rows of train at most (5,000)")
    seed = partial(count, least=0, most=LARGEST_SEED)
    sub.add_argument("--seed", type=seed, default=0, metavar="N", help="of samples (0)")
    sub.add_argument("--to", type=Path, metavar="DIR", help="write probe.html and probe.json there")


def probe(options: argparse.Namespace, console: Console) -> None:
    """Show what the layers and heads of models know and do."""
    from compress.pipeline.commands.probe_command import probe_and_show

    names = ("tags", "rows", "seed", "overrides", "cards")
    settings = {name: getattr(options, name) for name in names}
    probe_and_show(options.models, options.task, console, options.to, **settings)
