"""Commands that export, publish, get and verify models."""

import argparse
import tempfile
from pathlib import Path

from compress.cli.arguments import OUTPUTS, AddCommand, latency, size
from compress.console import Console
from compress.errors import UsageError
from compress.formats import EXPORTS

KEY_HELP = "the public key of minisign that must have signed it, or its file (COMPRESS_TRUSTED_KEYS)"


def add_export(command: AddCommand) -> None:
    """Add `compress export`."""
    sub = command(
        "export", "export a model folder, and quantize it with --quantize; or --check an existing export", export
    )
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


def export(options: argparse.Namespace, console: Console) -> None:
    """Export a model folder, and quantize it if a method is given; or check an existing export."""
    from compress.export.comparison.parity_check import check_golden
    from compress.pipeline.commands.export_command import check_and_show, chosen_variants, export_all, export_folder
    from compress.publish.pull import checked_model
    from compress.variants import ALL_FORMATS

    if options.check:
        if options.formats or options.quantize or options.calibration or options.assets:
            raise UsageError("--check compares the export that is in OUT; the options that make one have no effect.")
        check_and_show(options.model, options.to, console)
        return
    options.model = checked_model(options.model, console.warn)
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


def add_publish(command: AddCommand) -> None:
    """Add `compress publish`."""
    sub = command("publish", "publish the winners of a finished run as a new version", publish)
    sub.add_argument("run", help="a run's name or folder")
    sub.add_argument("--to", default="zoo", metavar="PLACE", help="a folder (zoo/), s3://, gs://, az:// …")
    sub.add_argument("--name", help="name of the published model; by default the run's")
    sub.add_argument("--version", help="by default the next number")
    sub.add_argument("--target", help="publish the winner of this target only")
    sub.add_argument("--row", metavar="ROW", help="publish this row of the ledger in place of the winner")
    sub.add_argument("--sign", metavar="KEY", help="a secret key file of minisign (COMPRESS_SIGNING_KEY)")
    sub.add_argument("--hub", metavar="OWNER/NAME", help="push to the model hub too (token from HF_TOKEN)")


def publish(options: argparse.Namespace, console: Console) -> None:
    """Publish a finished run's winners."""
    from compress.pipeline.commands.listing import run_folder
    from compress.pipeline.run_lock import check_replaced
    from compress.pipeline.steps.publish_step import Destination, publish_row, publish_winners
    from compress.publish.published_model import ALL
    from compress.publish.pull import pull as fetch
    from compress.publish.signatures import find_signer
    from compress.report.report_schema import read_report

    folder = run_folder(options.run, options.runs)
    check_replaced(folder)
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


def add_zoo(command: AddCommand) -> None:
    """Add `compress zoo`."""
    text = "list a place of published models, show one, compare two, withdraw a version"
    sub = command("zoo", text, zoo)
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
    ls.add_argument("--max-size", type=size, metavar="SIZE", help="such as 5MB")
    ls.add_argument("--max-p50", type=latency, metavar="TIME", help="such as 2ms, on the CPU that it was timed on")
    ls.add_argument("--min-score", type=float, metavar="SCORE", help="such as 0.9")
    action("show", "show one version and its variants", "address")
    action("diff", "show what differs between two versions", "one", "other")
    withdraw = action("withdraw", "take a version back: its name no longer means it", "address")
    withdraw.add_argument("--why", required=True, metavar="TEXT", help="shown to whoever names this version")


def zoo(options: argparse.Namespace, console: Console) -> None:
    """List, show, compare and withdraw published models."""
    from compress.publish.zoo_command import COMMANDS

    COMMANDS[options.action](options, console)


def add_pull(command: AddCommand) -> None:
    """Add `compress pull`."""
    sub = command("pull", "get a published model, and verify it", pull)
    sub.add_argument("source", help="PLACE/name or PLACE/name@version (a folder, http(s)://, s3:// …), or a hub id")
    sub.add_argument("to", type=Path, nargs="?", help="the folder to write; by default the model's name")
    sub.add_argument("--variant", metavar="NAME", help="by default the one that fits this machine; all: everything")
    sub.add_argument("--update", action="store_true", help="replace another version of it")
    sub.add_argument("--key", metavar="KEY", help=KEY_HELP)


def pull(options: argparse.Namespace, console: Console) -> None:
    """Download a published model."""
    from compress.publish.published_model import read_pulled
    from compress.publish.pull import pull as fetch
    from compress.publish.signatures import trusted_keys

    keys = trusted_keys(options.key)
    target = fetch(
        options.source,
        options.to,
        variant=options.variant,
        update=options.update,
        keys=keys,
        warn=console.warn,
    )
    pulled = read_pulled(target)
    signed = " and is signed by a trusted key" if keys else ""
    named = f" holds {pulled.version} ({pulled.variant});" if pulled and pulled.version else ":"
    console.data(
        {"folder": str(target), **(pulled.model_dump() if pulled else {})},
        f"{target}{named} every file has its published digest{signed}",
    )


def add_verify(command: AddCommand) -> None:
    """Add `compress verify`."""
    sub = command("verify", "compare a model's files with their checksums, and its outputs with PyTorch's", verify)
    sub.add_argument("model", help="a folder, or PLACE/name[@version]")
    sub.add_argument("--key", metavar="KEY", help=KEY_HELP)
    about = "time it again, and score it on --rows; exit code 3 where it is worse than its published intervals"
    sub.add_argument("--measure", action="store_true", help=about)
    sub.add_argument("--rows", type=Path, metavar="FILE", help="rows of test, with their labels, for --measure")


def verify(options: argparse.Namespace, console: Console) -> None:
    """Check a published model's files, and the outputs of its exports."""
    from compress.publish.verify_command import verify_and_show

    if options.rows and not options.measure:
        raise UsageError("--rows has an effect with --measure only.")
    verify_and_show(options.model, console, options.key, measure=options.measure, rows=options.rows)
