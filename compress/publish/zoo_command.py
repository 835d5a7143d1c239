"""`compress zoo ls|show|diff|withdraw`: what a place holds, one version, what differs between two, and taking back."""

import argparse
from collections.abc import Mapping
from typing import Any

from compress import format_numbers as fmt
from compress.console import Console
from compress.errors import ModelError, UsageError
from compress.publish.places import Absent, open_place, read
from compress.publish.published_model import PublishedModel, find, why_not_here
from compress.publish.records import Record
from compress.publish.verify import DIGESTS_FILE, MAX_DIGESTS_BYTES, parse_digests
from compress.publish.zoo import REPORT_FOLDER, withdraw
from compress.publish.zoo_index import read_index, select
from compress.report.report_schema import REPORT_FILE, Report, parse_report

MAX_REPORT_BYTES = 1 << 26
DEFAULT_PLACE = "zoo"
FILTERS = ("task", "kind", "language", "max_size", "max_p50", "min_score")


def ls(options: argparse.Namespace, console: Console) -> None:
    """List the versions of a place: the newest of each name, or all."""
    index = read_index(open_place(options.place))
    if not index.records and not open_place(options.place).files():
        raise ModelError(f"there is no zoo at {options.place}.", hint="compress publish RUN --to PLACE makes one")
    newest = [each for name in dict.fromkeys(each.name for each in index.records) if (each := index.newest(name))]
    chosen = select(index.records if options.all else newest, **{name: getattr(options, name) for name in FILTERS})
    if console.format == "json":
        console.data([each.model_dump(mode="json") for each in chosen])
        return
    if not chosen and console.format == "human":
        filtered = any(getattr(options, name) is not None for name in FILTERS)
        console.note(f"{options.place} has no published model{' that passes these filters' if filtered else ''}")
    console.table([_row(each, all_versions=options.all) for each in chosen])


def _row(record: Record, *, all_versions: bool) -> dict[str, Any]:
    shown = record.winner
    row = {
        "model": record.address,
        "task": record.task,
        "variants": ", ".join(each.variant for each in sorted(record.variants, key=lambda each: each is not shown)),
        "gate": shown and shown.gate,
        "score": record.scored(shown),
        "p50": fmt.milliseconds(shown.p50_ms) if shown and shown.p50_ms is not None else None,
        "size": fmt.size(shown.bytes) if shown and shown.bytes is not None else None,
        "published": f"{record.published:%Y-%m-%d}",
    }
    return row | ({"state": record.why and f"withdrawn: {record.why}"} if all_versions else {})


def show(options: argparse.Namespace, console: Console) -> None:
    """Show one version: its facts, and each of its variants."""
    record = _record(_model(options.address))
    if console.format == "json":
        console.data(record.model_dump(mode="json"))
        return
    facts = {
        "model": record.address,
        "state": f"withdrawn: {record.why}" if record.state == "withdrawn" else record.state,
        "task": ", ".join(filter(None, (record.task, record.kind.replace("_", " ")))),
        "languages": ", ".join(record.language),
        "licence": record.license,
        "published": f"{record.published:%Y-%m-%d %H:%M} UTC, by compress {record.made_by or '(not stated)'}",
        "timed on": record.cpu,
        "signed": "yes, unchecked: compress verify --key KEY checks it" if record.signed else "no",
        "files": fmt.size(record.files_bytes) if record.files_bytes else None,
        "digest": record.digest,
    }
    console.table([{"": name, record.name: value} for name, value in facts.items() if value])
    console.table(
        [
            {
                "variant": each.name,
                "is": each.variant,
                "won on": ", ".join(each.targets),
                "gate": each.gate,
                "score": record.scored(each),
                "p50": None if each.p50_ms is None else fmt.milliseconds(each.p50_ms),
                "size": None if each.bytes is None else fmt.size(each.bytes),
                "runs here": why_not_here(each) or "yes",
            }
            for each in record.variants
        ]
    )


def diff(options: argparse.Namespace, console: Console) -> None:
    """Show what differs between two versions: in their files, and in the reports of their runs."""
    from compress.report.compare_runs import compare_reports, show_comparison

    models = [_model(options.one), _model(options.other)]
    names = [each.name for each in models]
    listed = [_digests(each) for each in models]
    changed = sorted(name for name in {*listed[0], *listed[1]} if listed[0].get(name) != listed[1].get(name))
    reports = [each for each in map(_report, models) if each]
    comparison = compare_reports(reports, names=names) if len(reports) == 2 else None
    if console.format == "json":
        console.data(
            {
                "models": names,
                "changed_files": changed,
                "comparison": comparison and comparison.model_dump(mode="json"),
            }
        )
        return
    console.line(f"{names[0]} and {names[1]}: {len(changed)} files differ" if changed else "their files are equal")
    for name in changed:
        alone = [each for each, files in zip(names, listed, strict=True) if name in files]
        console.line(f"  {name}: {'differs' if len(alone) == 2 else f'only in {alone[0]}'}")
    if comparison is not None:
        show_comparison(comparison, console)


def take_back(options: argparse.Namespace, console: Console) -> None:
    """Withdraw a version."""
    if not options.why.strip():
        raise UsageError("--why needs a reason: whoever names this version is shown it.")
    model = _model(options.address)
    record = withdraw(model.place, model.address.rpartition("/")[2], " ".join(options.why.split())[:300])
    console.data(record.model_dump(mode="json"), f"{record.address} is withdrawn: {record.why}")


def _model(address: str) -> PublishedModel:
    """Return what an address names; one without a place is looked for in `zoo/`."""
    model = find(address if "/" in address else f"{DEFAULT_PLACE}/{address}")
    if model is None:
        raise ModelError(
            f"there is no published model at {address}.", hint="expected PLACE/name or PLACE/name@version (zoo/films@2)"
        )
    return model


def _record(model: PublishedModel) -> Record:
    if model.record is None:
        raise ModelError(f"{model.address} has no record: it is not in a zoo.", hint=f"compress verify {model.address}")
    return model.record


def _digests(model: PublishedModel) -> Mapping[str, Any]:
    content = read(model.place, model.path(DIGESTS_FILE), MAX_DIGESTS_BYTES)
    return parse_digests(content, f"{model.name}/{DIGESTS_FILE}").files


def _report(model: PublishedModel) -> Report | None:
    """Return the report that a version was published with."""
    path = model.path(f"{REPORT_FOLDER}/{REPORT_FILE}")
    try:
        return parse_report(read(model.place, path, MAX_REPORT_BYTES), f"{model.name}/{REPORT_FILE}")
    except Absent:
        return None


COMMANDS = {"ls": ls, "show": show, "diff": diff, "withdraw": take_back}
