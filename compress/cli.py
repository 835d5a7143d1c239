"""The command line: parses options, calls one handler, turns errors into exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from compress import __version__
from compress.console import Console, program_name, with_program
from compress.errors import EXIT_CODES, CompressError, suggestion, unexpected
from compress.formats import EXPORTS, describe_bare_files
from compress.recipe.sanity_limits import MAX_BATCH, MAX_THREADS

_INTERRUPTED_RUN = "interrupted; finished steps are cached, and the same command resumes there"
INTERRUPTED = {
    "run": _INTERRUPTED_RUN,
    "search": _INTERRUPTED_RUN,
    "pretrain": _INTERRUPTED_RUN,
    "label": "interrupted; every answer is stored, and the same command goes on there",
    "predict": "interrupted; parts of --to that are finished are kept, and the same command goes on there",
}
"""What Ctrl-C means, by command."""

LOUD_LIBRARIES = ("torchao", "torch.utils._pytree")
"""Where neural-compressor has installed torchao, transformers imports it, and both of these log about its parts for
devices that are not there. Only errors are shown."""

EPILOG = f"""\
start here:
  compress init                      write a recipe to fill in
  compress plan recipe.yaml          list its steps, and estimate their time
  compress run recipe.yaml           fine-tune, distil, prune, quantize, measure, report, publish
  compress predict winner/ "a text"  use the result

exit codes: {", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``compress.__main__`` and the console scripts call this."""
    options = parsed(arguments)
    console = Console(options.format, verbose=getattr(options, "verbose", False))
    for library in LOUD_LIBRARIES:
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        from compress import command_handlers

        getattr(command_handlers, options.command)(options, console)
        return 0
    except KeyboardInterrupt:
        console.warn(INTERRUPTED.get(options.command, "interrupted"))
        return 130
    except BrokenPipeError:
        # The reader of our output was closed (`| head`): nothing more can be written, nor flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("COMPRESS_DEBUG") == "1":
            raise
        failure = error if isinstance(error, CompressError) else unexpected(error)
        console.error(failure)
        return failure.exit_code


READ_FILES = "a .parquet, .csv, .tsv or .jsonl by its columns, any other a text a line, with tabs between its texts"

KEY_HELP = "the public key of minisign that must have signed it, or its file (COMPRESS_TRUSTED_KEYS)"

MAX_PORT, MAX_WAIT_MS = 65_535, 1000.0

OUTPUTS = ("human", "json", "quiet")
"""Formats of the output; the first is the default."""

REPEATED = {"predict": "texts", "bench": "models", "probe": "models", "report": "runs_shown"}
"""The commands whose last argument may be repeated, and its name."""


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments; repeated ones may also follow options, where argparse does not expect them."""
    grammar = parser()
    options, rest = grammar.parse_known_args(arguments)
    flags = [word for word in rest if word.startswith("-")]
    if rest and not flags and options.command in REPEATED:
        getattr(options, REPEATED[options.command]).extend(rest)
    elif rest and not flags and options.command == "pull" and options.to is None and len(rest) == 1:
        options.to = Path(rest[0])
    elif rest:
        grammar.error(f"unrecognized arguments: {' '.join(flags or rest)}")
    if options.command == "export":
        outputs = [name for name in options.formats if name in OUTPUTS]
        options.format = outputs[-1] if outputs else OUTPUTS[0]
        options.formats = [name for name in options.formats if name not in OUTPUTS]
    return options


class _Parser(argparse.ArgumentParser):
    """A parser whose help repeats the name by which the program was called."""

    def format_help(self) -> str:
        """Return the help, with that name in front of every command."""
        return with_program(super().format_help(), program_name())

    def error(self, message: str) -> NoReturn:
        """End with the message, and the command or choice that was perhaps meant."""
        found = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        super().error(message + (suggestion(found[1], re.findall(r"[\w-]+", found[2])) if found else ""))


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser(
        prog=program_name(),
        description="Make BERT-family encoders small and fast, and prove it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"compress-encoders {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--cards", action="append", type=Path, default=[], metavar="DIR", help="your own cards")
        sub.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (runs/)")
        if name != "export":  # there, the same option names formats of models too
            sub.add_argument("--format", choices=OUTPUTS, default=OUTPUTS[0], help="format of the output")
        return sub

    for add in (
        _init,
        _label,
        _ls,
        _plan,
        _run,
        _search,
        _pretrain,
        _clean,
        _report,
        _bench,
        _probe,
        _export,
        _publish,
        _zoo,
        _pull,
        _verify,
        _predict,
        _serve,
        _doctor,
    ):
        add(command)
    return top


Command = Callable[[str, str], argparse.ArgumentParser]


def _verbose(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--verbose", action="store_true", help="show everything that goes to log.txt")


def _recipe(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("recipe", help="a recipe file, or the name of a shipped one (compress ls recipes)")
    sub.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="such as seed=5")
    sub.add_argument("--smoke", action="store_true", help="test every step on a random model and a few rows")


def _init(command: Command) -> None:
    sub = command("init", "write a recipe to fill in")
    sub.add_argument("path", nargs="?", type=Path, default=Path("recipe.yaml"))
    sub.add_argument("--task", help="a named task (compress ls tasks)")
    sub.add_argument("--train", metavar="FILE", help="your rows: csv, tsv, jsonl or parquet")
    sub.add_argument("--text", action="append", metavar="COLUMN", help="the column of texts; twice for sentence pairs")
    sub.add_argument("--label", metavar="COLUMN", help="the column of labels")
    sub.add_argument("--kind", help="the kind of task (compress ls kinds)")
    sub.add_argument("--encoding", metavar="NAME", help="of the file, where it is not UTF-8: cp1252, utf-16 …")
    sub.add_argument("--teacher", default="minilm-l6", help="a card, a folder or a hub id")
    sub.add_argument("--student", help="a card, a folder or a hub id; without it the teacher is pruned")


def _label(command: Command) -> None:
    sub = command("label", "label rows by a service with OpenAI's interface, as data that a recipe reads")
    sub.add_argument("file", type=Path, help="what to label, and by which service (docs/labelling.md)")
    sub.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="such as limit=5"
    )
    sub.add_argument("--to", type=Path, metavar="DIR", help="the folder to write; by default labels/NAME")
    mode = sub.add_mutually_exclusive_group()
    mode.add_argument("--dry-run", action="store_true", help="say how many requests it takes and what they cost")
    mode.add_argument("--answered", action="store_true", help="send nothing; write the rows that are answered already")
    mode.add_argument("--retry-refused", action="store_true", help="ask again about texts that the service refused")


def _ls(command: Command) -> None:
    sub = command("ls", "list tasks, kinds, teachers, students, recipes, losses, variants, runs or searches")
    sub.add_argument("what", nargs="?", help="one of these; all by default")
    runs = sub.add_argument_group("runs")
    runs.add_argument("--task", metavar="NAME", help="of this task")
    runs.add_argument("--target", metavar="TITLE", help="on this target")
    runs.add_argument("--min-score", type=float, metavar="SCORE", help="such as 0.9")
    runs.add_argument("--max-p50", type=_latency, metavar="TIME", help="such as 2ms")
    runs.add_argument("--max-size", type=_size, metavar="SIZE", help="such as 5MB")
    runs.add_argument("--sort", choices=("name", "score", "p50", "size", "date"), help="the best, or newest, first")


def _plan(command: Command) -> None:
    sub = command("plan", "list what a recipe does, and about how long each stage takes")
    _recipe(sub)
    sub.add_argument("--all", action="store_true", help="every default of the recipe, and each step with its basis")
    sub.add_argument("--calibrate", action="store_true", help="prepare the data and try a few updates of each training")


def _run(command: Command) -> None:
    sub = command("run", "run a recipe; steps that are up to date are skipped")
    _recipe(sub)
    sub.add_argument("--from", metavar="STEP", dest="begin", help="run this step and all that depend on it again")
    sub.add_argument("--until", metavar="STEP", help="stop after this step")
    _verbose(sub)
    sub.add_argument("--force", action="store_true", help="run every step again")
    sub.add_argument("--dry-run", action="store_true", help="check everything and print the plan; run nothing")


def _search(command: Command) -> None:
    sub = command("search", "find the best model within a budget of time and size, and its recipe")
    sub.add_argument("recipe", help="a recipe file, or the name of a shipped one (compress ls recipes)")
    sub.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="such as seed=5")
    sub.add_argument("--budget", default="", metavar="LIMITS", help="p50=0.5ms,size=5MB,drop=0.015 (docs/searching.md)")
    sub.add_argument("--goal", choices=("speed", "size", "score"), help="what to improve within it (speed)")
    about = "parts that are trained on, up to 20 (6)"
    limit = "what may be taken for it: fewer finalists, by forecast"
    sub.add_argument("--minutes", type=partial(_count, most=10_000), metavar="N", help=limit)
    trials = "trainings that try other settings of the finalists' training: rate, temperature, losses (extra search)"
    sub.add_argument("--tune", type=partial(_count, most=500), default=0, metavar="N", help=trials)
    cluster = "train the finalists on a Ray cluster that shares the folder of runs: host:port, or auto"
    sub.add_argument("--ray", metavar="ADDRESS", help=cluster)
    sub.add_argument("--finalists", type=partial(_count, most=20), default=6, metavar="N", help=about)
    _verbose(sub)
    sub.add_argument("--dry-run", action="store_true", help="say about what it would do and take; run nothing")


def _pretrain(command: Command) -> None:
    sub = command("pretrain", "make an encoder from texts, or adapt one to them, for recipes to start from")
    sub.add_argument("recipe", help="a pretraining recipe file (docs/pretraining.md)")
    sub.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="such as seed=5")
    sub.add_argument("--force", action="store_true", help="run every step again")
    _verbose(sub)


def _clean(command: Command) -> None:
    sub = command("clean", "remove cached steps that no run uses")
    sub.add_argument("--dry-run", action="store_true", help="list them, remove nothing")


def _report(command: Command) -> None:
    sub = command("report", "show a finished run's results again, and its pages; or runs side by side")
    sub.add_argument("runs_shown", nargs="+", metavar="RUN", help="a run's name or folder, or a report.json")
    sub.add_argument("--open", action="store_true", help="open the page in the browser")
    about = "a run: into DIR/NAME, with the index of all reports there; several: the page that compares them, into DIR"
    sub.add_argument("--to", type=Path, metavar="DIR", help=about)


def _bench(command: Command) -> None:
    sub = command("bench", f"time any models side by side: folders, hub ids, {describe_bare_files()} files")
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


def _probe(command: Command) -> None:
    sub = command("probe", "what each layer and head knows and does, and what training or pruning changed")
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
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="of samples (0)")
    sub.add_argument("--to", type=Path, metavar="DIR", help="write probe.html and probe.json there")


def _export(command: Command) -> None:
    sub = command("export", "export a model folder, and quantize it with --quantize; or --check an existing export")
    sub.add_argument("model", help="a model folder, or a hub id")
    sub.add_argument("to", type=Path, metavar="OUT", help="the folder to write, or to check")
    sub.add_argument(
        "--format",
        "--as",
        action="append",
        default=[],
        dest="formats",
        metavar="NAME",
        help=f"{', '.join(EXPORTS)}, a variant of one, or all; where there are several, each goes into OUT/NAME/"
        " (default: what --quantize makes, else the first); also how the output is written: human, json, quiet",
    )
    sub.add_argument("--quantize", metavar="METHOD", help="int8, or one of the methods in docs/quantizing.md")
    about = "texts from which a static method takes its ranges, one a line, their parts separated by tabs"
    sub.add_argument("--calibration", type=Path, metavar="FILE", help=about)
    about = "where the web format finds its npm packages (docs/web.md); by default npm downloads them once"
    sub.add_argument("--assets", type=Path, metavar="DIR", help=about)
    about = "compare the export in OUT with MODEL in PyTorch and write nothing; exit code 3 where outputs differ"
    sub.add_argument("--check", action="store_true", help=about)


def _publish(command: Command) -> None:
    sub = command("publish", "publish the winners of a finished run as a new version")
    sub.add_argument("run", help="a run's name or folder")
    sub.add_argument("--to", default="zoo", metavar="PLACE", help="a folder (zoo/), s3://, gs://, az:// …")
    sub.add_argument("--name", help="name of the published model; by default the run's")
    sub.add_argument("--version", help="by default the next number")
    sub.add_argument("--target", help="publish the winner of this target only")
    sub.add_argument("--row", metavar="ROW", help="publish this row of the ledger in place of the winner")
    sub.add_argument("--sign", metavar="KEY", help="a secret key file of minisign (COMPRESS_SIGNING_KEY)")
    sub.add_argument("--hub", metavar="OWNER/NAME", help="push to the model hub too (token from HF_TOKEN)")


def _zoo(command: Command) -> None:
    text = "list a place of published models, show one, compare two, withdraw a version"
    sub = command("zoo", text)
    actions = sub.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, about: str, *addresses: str) -> argparse.ArgumentParser:
        each = actions.add_parser(name, help=about, description=about)
        for address in addresses:
            each.add_argument(address, metavar="MODEL", help="PLACE/name or PLACE/name@version (without PLACE: zoo/)")
        each.add_argument("--format", choices=OUTPUTS, default=argparse.SUPPRESS, help="format of the output")
        return each

    ls = action("ls", "list published models, the newest version of each")
    ls.add_argument("place", nargs="?", default="zoo", metavar="PLACE", help="a folder (zoo/), http(s)://, s3:// …")
    ls.add_argument("--all", action="store_true", help="every version, withdrawn ones too")
    ls.add_argument("--task", metavar="NAME")
    ls.add_argument("--kind", metavar="KIND", help="a kind of task (compress ls kinds)")
    ls.add_argument("--language", metavar="CODE", help="such as en")
    ls.add_argument("--max-size", type=_size, metavar="SIZE", help="such as 5MB")
    ls.add_argument("--max-p50", type=_latency, metavar="TIME", help="such as 2ms, on the CPU that it was timed on")
    ls.add_argument("--min-score", type=float, metavar="SCORE", help="such as 0.9")
    action("show", "show one version and its variants", "address")
    action("diff", "show what differs between two versions", "one", "other")
    withdraw = action("withdraw", "take a version back: its name no longer means it", "address")
    withdraw.add_argument("--why", required=True, metavar="TEXT", help="shown to whoever names this version")


def _pull(command: Command) -> None:
    sub = command("pull", "get a published model, and verify it")
    sub.add_argument("source", help="PLACE/name or PLACE/name@version (a folder, http(s)://, s3:// …), or a hub id")
    sub.add_argument("to", type=Path, nargs="?", help="the folder to write; by default the model's name")
    sub.add_argument("--variant", metavar="NAME", help="by default the one that fits this machine; all: everything")
    sub.add_argument("--update", action="store_true", help="replace another version of it")
    sub.add_argument("--key", metavar="KEY", help=KEY_HELP)


def _verify(command: Command) -> None:
    sub = command("verify", "compare a model's files with their checksums, and its outputs with PyTorch's")
    sub.add_argument("model", help="a folder, or PLACE/name[@version]")
    sub.add_argument("--key", metavar="KEY", help=KEY_HELP)
    about = "time it again, and score it on --rows; exit code 3 where it is worse than its published intervals"
    sub.add_argument("--measure", action="store_true", help=about)
    sub.add_argument("--rows", type=Path, metavar="FILE", help="rows of test, with their labels, for --measure")


def _predict(command: Command) -> None:
    sub = command("predict", "predict texts with any model folder or variant")
    sub.add_argument("model", help="a folder, or PLACE/name[@version] of a zoo")
    texts = "pairs two by two, a question before all its choices or candidates; none: lines of --file or stdin"
    sub.add_argument("texts", nargs="*", metavar="TEXT", help=texts)
    sub.add_argument("--file", action="append", default=[], help=f"{READ_FILES}, or a pattern in quotes; may repeat")
    about = "texts that run together; by default those that were scored together where answers depend on it, else 32"
    about += " (of a file 512 tokens)"
    sub.add_argument("--batch", type=partial(_count, most=MAX_BATCH), metavar="N", help=about)
    sub.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    sub.add_argument("--threads", type=partial(_count, most=MAX_THREADS), default=1, metavar="N", help="of a process")
    bulk = sub.add_argument_group("files of many rows", "see docs/bulk.md")
    bulk.add_argument("--to", metavar="OUT", help=".parquet, .csv, .jsonl, .npy (embeddings), or a folder")
    bulk.add_argument("--text", action="append", default=[], metavar="COLUMN", help="default: the task's columns")
    bulk.add_argument("--encoding", default="utf-8", help="of text files (utf-8)")
    bulk.add_argument("--prefix", default="", help="goes before the names of the answer columns")
    bulk.add_argument("--probabilities", action="store_true", help="adds those of all classes")
    bulk.add_argument("--bad-rows", choices=("refuse", "keep"), default="refuse", help="rows that cannot be read")
    bulk.add_argument("--workers", type=partial(_count, most=MAX_THREADS), metavar="N", help="processes (all cores)")
    bulk.add_argument("--shard", metavar="K/N", help="one of N parts of the work, K from 0 to N-1")
    bulk.add_argument("--merge", action="store_true", help="puts the shards together")
    bulk.add_argument("--replace", action="store_true", help="writes OUT anew where it exists")


def _serve(command: Command) -> None:
    sub = command("serve", "a web service for models")
    sub.add_argument("folders", nargs="+", metavar="[NAME=]MODEL", help="folders, or PLACE/name[@version]")
    sub.add_argument("--host", default="127.0.0.1", help="(127.0.0.1: this machine alone)")
    sub.add_argument("--port", type=_port, default=8000, help="(8000; 0: a free one)")
    sub.add_argument(
        "--threads",
        type=partial(_count, most=MAX_THREADS),
        default=1,
        metavar="N",
        help="that run a model, each on a core (1)",
    )
    about = "milliseconds for which a row waits for others to run with (0: it runs with those that wait anyway)"
    sub.add_argument("--max-wait", type=_milliseconds, default=0.0, metavar="MS", help=about)
    sub.add_argument(
        "--queue", type=partial(_count, most=1_000_000), default=256, metavar="ROWS", help="rows that may wait (256)"
    )
    sub.add_argument("--key-env", metavar="NAME", help="the environment variable with the key that clients send")
    sub.add_argument("--watch", action="store_true", help="follow folders that change, and newer versions")
    sub.add_argument("--device", choices=("cpu", "cuda"), default="cpu")


def _doctor(command: Command) -> None:
    command("doctor", "check versions, devices, CPU instructions, disk and hub")


def _size(text: str) -> float:
    from compress.recipe.field_types import bytes_of

    return _with_unit(bytes_of, text)


def _latency(text: str) -> float:
    from compress.recipe.field_types import milliseconds_of

    return _with_unit(milliseconds_of, text)


def _with_unit(parse: Callable[[str], Any], text: str) -> float:
    """Return a number with its unit, or say what was expected."""
    try:
        return float(parse(text))
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _port(text: str) -> int:
    if not text.isdecimal() or int(text[:20]) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to {MAX_PORT}, got '{text[:40]}'")
    return int(text)


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= MAX_WAIT_MS:
        raise argparse.ArgumentTypeError(f"expected milliseconds from 0 to {MAX_WAIT_MS:g}, got '{text[:40]}'")
    return value


def _count(text: str, most: int) -> int:
    if not text.isdecimal() or not 1 <= int(text[:20]) <= most:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {most}, got '{text[:40]}'")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
