"""The command line: parse, call one function, print. The only place that exits."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from compress import __version__
from compress.console import Console
from compress.errors import CompressError, unexpected
from compress.formats import EXPORTS, describe_bare_files

INTERRUPTED = 130
INTERRUPTION = "interrupted; what was finished is kept, the same command goes on from there"

EPILOG = """\
start here:
  compress init                      write a recipe to fill in
  compress plan recipe.yaml          what would run, and for how long
  compress run recipe.yaml           teacher, student, pruned, INT8, measured, reported, published
  compress predict winner/ "a text"  use what came out

exit codes: 0 ok, 1 failure, 2 bad usage or recipe, 3 gate missed, 130 interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``compress.__main__`` and the console scripts call this."""
    options = parsed(arguments)
    console = Console(options.format)
    try:
        from compress.command_handlers import COMMANDS

        return COMMANDS[options.command](options, console) or 0
    except KeyboardInterrupt:
        console.warn(INTERRUPTION if options.command == "run" else "interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing more can be said there, by the last flush neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except CompressError as error:
        if os.environ.get("COMPRESS_DEBUG") == "1":
            raise
        console.error(error)
        return error.exit_code
    except Exception as error:
        if os.environ.get("COMPRESS_DEBUG") == "1":
            raise
        console.error(unexpected(error))
        return 1


LISTS = {"predict": "texts", "bench": "models"}
"""The commands whose last argument repeats, and what it is called."""


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options as typed; what repeats may also stand after options, where argparse no longer looks for it."""
    grammar = parser()
    options, rest = grammar.parse_known_args(arguments)
    flags = [word for word in rest if word.startswith("-")]
    if rest and not flags and options.command in LISTS:
        getattr(options, LISTS[options.command]).extend(rest)
    elif rest and not flags and options.command == "pull" and options.to is None and len(rest) == 1:
        options.to = Path(rest[0])
    elif rest:
        grammar.error(f"unrecognized arguments: {' '.join(flags or rest)}")
    return options


def parser() -> argparse.ArgumentParser:
    """The whole grammar."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--format", choices=("human", "json", "quiet"), default="human", help="how results are written")
    shared.add_argument(
        "--cards", action="append", type=Path, default=[], metavar="DIR", help="a folder of your own cards"
    )
    shared.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs are kept (runs/)")
    top = argparse.ArgumentParser(
        prog="compress",
        description="Make BERT-family encoders small and fast, and prove it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"compress-encoders {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[shared], help=text, description=text)

    for add in (_init, _ls, _plan, _run, _clean, _report, _bench, _export, _publish, _pull, _verify, _predict, _doctor):
        add(command)
    return top


Command = Callable[[str, str], argparse.ArgumentParser]


def _recipe(each: argparse.ArgumentParser) -> None:
    each.add_argument("recipe", help="a recipe file, or the name of a shipped one (compress ls recipes)")
    each.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="e.g. distill.epochs=5"
    )


def _smoke(each: argparse.ArgumentParser) -> None:
    each.add_argument("--smoke", action="store_true", help="a two-layer random model and a few rows through every step")


def _place(each: argparse.ArgumentParser) -> None:
    each.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    each.add_argument("--threads", type=_count, default=1, metavar="N")


def _init(command: Command) -> None:
    each = command("init", "write a recipe to fill in")
    each.add_argument("path", nargs="?", type=Path, default=Path("recipe.yaml"))
    each.add_argument("--task", help="a named task (compress ls tasks)")
    each.add_argument("--train", metavar="FILE", help="your rows: csv, tsv, jsonl or parquet")
    each.add_argument("--text", action="append", metavar="COLUMN", help="the text's column; twice for sentence pairs")
    each.add_argument("--label", metavar="COLUMN", help="the answer's column")
    each.add_argument("--kind", help="what the task is: compress ls kinds")
    each.add_argument("--teacher", default="minilm-l6", help="a card, a folder or a hub id")
    each.add_argument("--student", default="half-depth", help="a card, a folder or a hub id")


def _ls(command: Command) -> None:
    each = command("ls", "what there is: tasks, kinds, teachers, students, recipes, losses, variants, runs")
    each.add_argument("what", nargs="?", help="one of these; all of them when left out")


def _plan(command: Command) -> None:
    each = command("plan", "the recipe with every default, its steps, what stands, and what the rest takes")
    _recipe(each)
    _smoke(each)
    each.add_argument(
        "--calibrate", action="store_true", help="prepare the data and try a few updates of each training first"
    )


def _run(command: Command) -> None:
    each = command("run", "run a recipe; what stands is skipped")
    _recipe(each)
    each.add_argument("--from", metavar="STEP", dest="begin", help="run this step and all that needs it again")
    each.add_argument("--until", metavar="STEP", help="stop after this step")
    each.add_argument("--force", action="store_true", help="run every step again")
    each.add_argument("--dry-run", action="store_true", help="check everything and show the plan, run nothing")
    _smoke(each)


def _clean(command: Command) -> None:
    each = command("clean", "remove steps that no run names")
    each.add_argument("--dry-run", action="store_true", help="show what would go")


def _report(command: Command) -> None:
    each = command("report", "show a finished run's ledger again, and draw its report anew")
    each.add_argument("run", help="a run's name or folder, or a report.json")


def _bench(command: Command) -> None:
    each = command("bench", f"time any models side by side: folders, hub ids, {describe_bare_files()} files")
    each.add_argument(
        "models", nargs="+", metavar="MODEL[:VARIANT]", help="ratios are to the first; e.g. teacher:torch-bf16 x.onnx"
    )
    place = "DEVICE[,threads=N][,batch=N][,length=N]"
    each.add_argument(
        "--target", action="append", default=[], dest="targets", metavar=place, help="where; may be repeated (cpu)"
    )
    each.add_argument("--against", metavar="MODEL", help="take ratios to this one of them")
    each.add_argument(
        "--texts", type=Path, metavar="FILE", help="a text a line: times at these lengths, and end to end"
    )
    each.add_argument(
        "--grid", action="append", default=[], metavar="KEY=N,N,…", help="also at batch=1,8,32 and length=32,128"
    )
    each.add_argument("--callers", metavar="N,N,…", help="throughput and waiting with so many callers at once")
    each.add_argument("--budget", metavar="30s", help="what a session may take; says what precision that bought")
    each.add_argument(
        "--rounds", type=_integer, metavar="N", help="rounds of a session, at least 3, instead of a budget"
    )
    each.add_argument("--seconds", type=float, metavar="S", help="length of each model's turn in a round, above 0")
    each.add_argument(
        "--limits", action="store_true", help="tell shares of what this machine can do; measured once, ten seconds"
    )
    each.add_argument("--output", type=Path, metavar="FILE.json", help="write every figure here too")


def _export(command: Command) -> None:
    each = command("export", "export a model folder, and quantize it if asked")
    each.add_argument("model", help="a model folder, or a hub id")
    each.add_argument("to", type=Path, help="the folder to write")
    each.add_argument("--as", default="onnx", dest="form", metavar="FORMAT", help=" or ".join(EXPORTS))
    each.add_argument("--quantize", metavar="METHOD", help="int8")


def _publish(command: Command) -> None:
    each = command("publish", "publish a finished run's winner")
    each.add_argument("run", help="a run's name or folder")
    each.add_argument("--to", default="zoo", metavar="ZOO", help="a local zoo folder (zoo/)")
    each.add_argument("--name", help="what it is called there; by default the run's name")
    each.add_argument("--target", help="whose winner; by default the first target's")
    each.add_argument("--hub", metavar="OWNER/NAME", help="push to the model hub too (token from HF_TOKEN)")


def _pull(command: Command) -> None:
    each = command("pull", "fetch a published model and check its digests")
    each.add_argument("source", help="a zoo folder's model, an http(s) address, or a hub id")
    each.add_argument("to", type=Path, nargs="?", help="the folder to write; by default the model's name")


def _verify(command: Command) -> None:
    each = command("verify", "check a published model's files against their digests")
    each.add_argument("model", type=Path)


def _predict(command: Command) -> None:
    each = command("predict", "texts in, answers out, from any model folder or variant")
    each.add_argument("model", type=Path)
    each.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT",
        help="texts; pairs two by two, a question before all its choices or candidates; none: lines of --file or stdin",
    )
    each.add_argument(
        "--file", type=Path, help="a text a line; parts of a row with a tab between; empty lines have no answer"
    )
    each.add_argument("--batch", type=_count, default=16, metavar="N")
    _place(each)


def _doctor(command: Command) -> None:
    command("doctor", "versions, devices, instructions, disk, hub: what works here and what does not")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got '{text}'")
    return int(text)


def _integer(text: str) -> int:
    """Any whole number: how small it may be is told where all of the command is known."""
    if not text.removeprefix("-").isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, got '{text}'")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
