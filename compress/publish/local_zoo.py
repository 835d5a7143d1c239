"""A zoo: a folder of published models in the Hugging Face layout, each with card, report and digests."""

from __future__ import annotations

import json
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compress.errors import ModelError, UsageError
from compress.measure.resources.footprint import needed_files
from compress.model_info import INFO_FILE, read_info
from compress.publish.checksums import DIGESTS_FILE, Digests, write_digests
from compress.publish.model_card import Subject, model_card
from compress.report.pages.render import write_pages
from compress.report.report_schema import Report

INDEX_FILE = "index.json"
CARD_FILE = "README.md"
REPORT_FOLDER = "report"
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


def publish(folder: Path, report: Report, zoo: Path, name: str, target: str | None = None) -> Path:
    """Publish a winner's folder as ``zoo/name``; an older model of ours under this name is replaced whole.

    Args:
        folder: the winner, as the run left it.
        report: the run's report; it goes along.
        zoo: the folder of published models; made where it is not there.
        name: what the model is called there.
        target: whose winner it is; by default the first target that has one.
    """
    place = zoo / name
    _check_place(place, name)
    subject = find_subject(folder, report, name, target)
    with_index = read_index(zoo)
    work = zoo / f".{name}.new-{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        listed = _fill(work, folder, report, subject)
        _swap(work, place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _write_index(zoo, {**with_index, name: _entry(subject, listed)})
    return place


def find_subject(folder: Path, report: Report, name: str, target: str | None = None) -> Subject:
    """What is published: the report's row behind ``folder``, checked against what the folder says of itself."""
    won = [verdict for verdict in report.verdicts if verdict.winner and target in (None, verdict.target)]
    row = report.row(won[0].winner) if won and won[0].winner else None
    if row is None:
        raise UsageError(f"report '{report.name}' names no winner{f' at {target}' if target else ''}.")
    info = read_info(folder)
    own = info.variant.name if info.variant else None
    if own is not None and own != row.variant.name:
        raise ModelError(f"{folder} holds {own}; the report's winner at {won[0].target} is {row.key}.")
    return Subject(name, report, won[0], row, info)


def read_index(zoo: Path) -> dict[str, Any]:
    """A zoo's models by name, without those that were removed since."""
    path = zoo / INDEX_FILE
    if not path.is_file():
        return {}
    try:
        models = json.loads(path.read_bytes())["models"]
        return {name: entry for name, entry in models.items() if (zoo / name / DIGESTS_FILE).is_file()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path} is not a zoo's index: {error!r}", hint="move it away; publishing writes a new one"
        ) from error


def layout(path: Path, folder: Path) -> str:
    """Where a file of a variant goes: ONNX models into `onnx/`, where transformers.js and optimum look for them."""
    name = path.relative_to(folder).as_posix()
    return f"onnx/{name}" if "/" not in name and ".onnx" in path.name else name


def _check_place(place: Path, name: str) -> None:
    if not NAME.match(name):
        raise UsageError(f"'{name}' cannot name a published model: letters, digits, dots, dashes and underscores can.")
    if place.parent.exists() and not place.parent.is_dir():
        raise UsageError(f"{place.parent} is a file; expected a zoo's folder.")
    if place.exists() and not ((place / DIGESTS_FILE).is_file() and (place / INFO_FILE).is_file()):
        raise UsageError(
            f"{place} holds something that compress did not publish; it stays as it is.",
            hint="publish under another name, or remove it first",
        )


def _fill(work: Path, folder: Path, report: Report, subject: Subject) -> Digests:
    for path in needed_files(folder):
        copy = work / layout(path, folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    (work / CARD_FILE).write_text(model_card(subject), encoding="utf-8")
    (work / REPORT_FOLDER).mkdir()
    write_pages(work / REPORT_FOLDER, report)
    return write_digests(work)


def _swap(work: Path, place: Path) -> None:
    """Put the new model in place; the old one is whole until the new one is."""
    if not place.exists():
        work.rename(place)
        return
    old = place.with_name(f".{place.name}.old-{os.getpid()}")
    place.rename(old)
    work.rename(place)
    shutil.rmtree(old)


def _entry(subject: Subject, listed: Digests) -> dict[str, Any]:
    row, title = subject.row, subject.verdict.target
    place = row.targets[title]
    return {
        "task": subject.report.task.name,
        "variant": row.variant.name,
        "shape": row.shape,
        "metric": subject.report.task.metric,
        "score": place.test.primary.value if place.test else None,
        "target": title,
        "p50_ms": place.latency.model.p50.value if place.latency.model else None,
        "bytes": row.footprint.bytes_total if row.footprint else None,
        "digest": listed.combined,
        "published": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _write_index(zoo: Path, models: dict[str, Any]) -> None:
    aside = zoo / f".{INDEX_FILE}.{os.getpid()}"
    content = {"schema_version": 1, "models": dict(sorted(models.items()))}
    aside.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    aside.replace(zoo / INDEX_FILE)
