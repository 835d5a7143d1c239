"""Commands that use models, and look at the machine."""

import argparse
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path

from compress.cli.arguments import AddCommand, count
from compress.console import Console
from compress.recipe.sanity_limits import MAX_BATCH, MAX_THREADS

READ_FILES = "a .parquet, .csv, .tsv or .jsonl by its columns, any other a text a line, with tabs between its texts"

MAX_PORT, MAX_WAIT_MS = 65_535, 1000.0


def add_predict(command: AddCommand) -> None:
    """Add `compress predict`."""
    sub = command("predict", "predict texts with any model folder or variant", predict)
    sub.add_argument("model", help="a folder, or PLACE/name[@version] of a zoo")
    texts = "pairs two by two, a question before all its choices or candidates; none: lines of --file or stdin"
    sub.add_argument("texts", nargs="*", metavar="TEXT", help=texts)
    sub.add_argument("--file", action="append", default=[], help=f"{READ_FILES}, or a pattern in quotes; may repeat")
    about = "texts that run together; by default those that were scored together where answers depend on it, else 32"
    about += " (of a file 512 tokens)"
    sub.add_argument("--batch", type=partial(count, most=MAX_BATCH), metavar="N", help=about)
    sub.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    sub.add_argument("--threads", type=partial(count, most=MAX_THREADS), default=1, metavar="N", help="of a process")
    bulk = sub.add_argument_group("files of many rows", "see docs/bulk.md")
    bulk.add_argument("--to", metavar="OUT", help=".parquet, .csv, .jsonl, .npy (embeddings), or a folder")
    bulk.add_argument("--text", action="append", default=[], metavar="COLUMN", help="default: the task's columns")
    bulk.add_argument("--encoding", default="utf-8", help="of text files (utf-8)")
    bulk.add_argument("--prefix", default="", help="goes before the names of the answer columns")
    bulk.add_argument("--probabilities", action="store_true", help="adds those of all classes")
    bulk.add_argument("--bad-rows", choices=("refuse", "keep"), default="refuse", help="rows that cannot be read")
    bulk.add_argument("--workers", type=partial(count, most=MAX_THREADS), metavar="N", help="processes (all cores)")
    bulk.add_argument("--shard", metavar="K/N", help="one of N parts of the work, K from 0 to N-1")
    bulk.add_argument("--merge", action="store_true", help="puts the shards together")
    bulk.add_argument("--replace", action="store_true", help="writes OUT anew where it exists")


def predict(options: argparse.Namespace, console: Console) -> None:
    """Predict texts."""
    from compress.bulk.bulk_command import BulkOptions, is_table, local_input, predict_files, show_table
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
        shown = {"batch": options.batch, "placement": placement, "every_class": options.probabilities}
        shown |= {"encoding": options.encoding, "name": files[0] if files else ""}
        is_remote = bool(files) and "://" in files[0]
        with local_input(files[0]) if is_remote else nullcontext(Path(files[0]) if files else None) as file:
            predict_and_show(options.model, options.texts, console, file=file, **shown)


def add_serve(command: AddCommand) -> None:
    """Add `compress serve`."""
    sub = command("serve", "a web service for models", serve)
    sub.add_argument("folders", nargs="+", metavar="[NAME=]MODEL", help="folders, or PLACE/name[@version]")
    sub.add_argument("--host", default="127.0.0.1", help="(127.0.0.1: this machine alone)")
    sub.add_argument("--port", type=_port, default=8000, help="(8000; 0: a free one)")
    sub.add_argument(
        "--threads",
        type=partial(count, most=MAX_THREADS),
        default=1,
        metavar="N",
        help="that run a model, each on a core (1)",
    )
    about = "milliseconds for which a row waits for others to run with (0: it runs with those that wait anyway)"
    sub.add_argument("--max-wait", type=_milliseconds, default=0.0, metavar="MS", help=about)
    sub.add_argument(
        "--queue", type=partial(count, most=1_000_000), default=256, metavar="ROWS", help="rows that may wait (256)"
    )
    sub.add_argument("--key-env", metavar="NAME", help="the environment variable with the key that clients send")
    sub.add_argument("--watch", action="store_true", help="follow folders that change, and newer versions")
    sub.add_argument("--device", choices=("cpu", "cuda"), default="cpu")


def serve(options: argparse.Namespace, console: Console) -> None:
    """Serve models."""
    from compress.serve.server import ServeOptions, serve

    names = ("host", "port", "threads", "max_wait", "queue", "key_env", "watch", "device")
    serve(options.folders, ServeOptions(**{name: getattr(options, name) for name in names}), console)


def add_doctor(command: AddCommand) -> None:
    """Add `compress doctor`."""
    command("doctor", "check versions, devices, CPU instructions, disk and hub", doctor)


def doctor(options: argparse.Namespace, console: Console) -> None:
    """Check what works on this machine."""
    from compress.environment import describe
    from compress.environment.doctor import doctor_rows

    machine = describe(options.runs, devices=True, hub=True)  # takes a few seconds
    console.table([asdict(row) for row in doctor_rows(machine)])


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
