"""A zoo: a folder of published models in the Hugging Face layout, each with model card, report and checksums.

One process at a time writes to a zoo. An entry is written to a hidden folder first and then renamed, so that readers
see the old entry or the new one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock, Timeout

from compress import format_numbers as fmt
from compress.data.tokenizer import read_json
from compress.errors import CompressError, ModelError, UsageError
from compress.export.other_tools import name_file
from compress.export.runners import export_readme
from compress.measure.resources.footprint import needed_files
from compress.model_folder.model_info import GOLDEN_FILE, INFO_FILE
from compress.model_folder.model_readme import write_readme
from compress.model_folder.tokenizer_files import write_tokenizer_files
from compress.publish.entry import Entry, PublishedVariant, make_entry, path_in_entry
from compress.publish.model_card import model_card
from compress.publish.verify import DIGESTS_FILE, Digests, read_digests, write_digests
from compress.report.pages.render import write_pages
from compress.report.report_schema import REPORT_FILE, Report, report_json
from compress.storage.atomic_write import atomic_write, copy_content, new_folder
from compress.storage.file_names import check_file_name

INDEX_FILE = "index.json"
REPORT_FOLDER = "report"
LOCK_FILE = ".lock"
LOCK_SECONDS = 600.0
"""How long to wait for another process that publishes into the same zoo."""


def publish_entry(
    winners: Mapping[str, Path],
    report: Report,
    zoo: Path,
    name: str,
    root: Path | None = None,
    *,
    replace: bool = False,
) -> Path:
    """Publish the winners of a run as ``zoo/name`` and return that path.

    The first target's winner fills the entry's root, where the hub, optimum and transformers.js expect it. A different
    winner of another target becomes a complete model folder in ``variants/<model>-<variant>/``. An entry that compress
    published under this name before is replaced as a whole where its models are among those that come, or on request;
    anything else there is left as it is, with an error.

    Args:
        winners: the folder of each target's winner, by target title.
        report: the run's report, published with the entry.
        zoo: the folder of published models; created if it does not exist.
        name: the entry's name.
        root: the folder of the best variant that runs everywhere, where the first winner does not; it fills the root.
        replace: an entry with other models too.
    """
    try:
        check_file_name(name)
    except ValueError as error:
        raise UsageError(f"the name of a published model {error}.", hint="choose another one with --name") from error
    entry = make_entry(winners, report, name, root)
    with _locked(zoo):
        _check_replaceable(zoo / name)
        entries = read_index(zoo)
        with new_folder(zoo / name) as work:
            listed = _write_entry(work, entry)
            if (zoo / name).exists() and not replace:
                hint = f"compress publish {report.name} --to {zoo} --replace, or --name for an entry beside it"
                _check_keeps(zoo / name, listed, entries.get(name), _index_entry(entry, listed), hint)
        _write_index(zoo, {**entries, name: _index_entry(entry, listed)})
    return zoo / name


def is_published(winners: Mapping[str, Path], report: Report, zoo: Path, name: str, root: Path | None = None) -> bool:
    """Whether ``zoo/name`` already holds exactly these winners with this report, and the index lists it."""
    folder = zoo / name
    try:
        indexed = read_index(zoo)[name]
        same_report = (folder / REPORT_FOLDER / REPORT_FILE).read_text(encoding="utf-8") == report_json(report)
        if not same_report or indexed["digest"] != read_digests(folder).combined:
            return False
        sources = {variant.path or ".": variant.source for variant in make_entry(winners, report, name, root).variants}
        return sources.keys() == {variant["path"] for variant in indexed["variants"]} and all(
            (folder / path / INFO_FILE).read_bytes() == (source / INFO_FILE).read_bytes()
            for path, source in sources.items()
        )
    except (OSError, UnicodeDecodeError, KeyError, ModelError):
        return False


def read_index(zoo: Path) -> dict[str, Any]:
    """Return the index entries of a zoo by name, without entries whose folder was removed since."""
    path = zoo / INDEX_FILE
    if not path.is_file():
        return {}
    try:
        models = json.loads(path.read_bytes())["models"]
        return {name: entry for name, entry in models.items() if (zoo / name / DIGESTS_FILE).is_file()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path} is not a zoo's index: {error!r}", "publishing writes a new one if it is moved away"
        ) from error


def _check_replaceable(folder: Path) -> None:
    published = (folder / DIGESTS_FILE).is_file() and (folder / INFO_FILE).is_file()
    if folder.exists() and not published:
        raise UsageError(
            f"{folder} exists and was not published by compress; it is left as it is.",
            hint="publish under another name, or remove it first",
        )


def _check_keeps(
    folder: Path, listed: Digests, before: Mapping[str, Any] | None, after: Mapping[str, Any], hint: str
) -> None:
    """Refuse to replace an entry whose models are not among those that come."""
    now = listed.files
    if any(now.get(name) != file for name, file in read_digests(folder).files.items() if _is_of_a_model(name)):
        there = f", {_in_words(before)}, published {before['published'][:10]}" if before else ""
        raise CompressError(
            f"{folder} holds another result{there}; this one is {_in_words(after)}. It was not published, and nothing"
            " was replaced.",
            hint=hint,
        )


def _is_of_a_model(name: str) -> bool:
    """Whether a file of an entry is a model's, and not about how it was made and measured."""
    path = PurePosixPath(name)
    return path.name not in (INFO_FILE, "README.md") and path.parts[0] != REPORT_FOLDER


def _in_words(entry: Mapping[str, Any]) -> str:
    """`onnx-int8 with accuracy 0.913, 0.91 ms and 4.2 MB`."""
    score, p50, size = entry["score"], entry["p50_ms"], entry["bytes"]
    figures = [
        *([f"{fmt.metric(entry['metric'])} {score:.4g}"] if score is not None else []),
        *([fmt.milliseconds(p50)] if p50 is not None else []),
        *([fmt.size(size)] if size is not None else []),
    ]
    return f"{entry['variant']} ({', '.join(figures)})"


def _locked(zoo: Path) -> AbstractContextManager[object]:
    """Create the zoo's folder if needed and acquire its lock, which the returned context manager releases."""
    try:
        zoo.mkdir(parents=True, exist_ok=True)
        return FileLock(zoo / LOCK_FILE, timeout=LOCK_SECONDS).acquire()
    except Timeout as error:
        raise CompressError(f"another process has been publishing into {zoo} for {LOCK_SECONDS:.0f} s.") from error
    except OSError as error:
        raise UsageError(f"{zoo} cannot be used as a zoo: {error.strerror}.", hint="--to names a folder") from error


def _write_entry(work: Path, entry: Entry) -> Digests:
    for variant in entry.variants:
        golden = variant.source / GOLDEN_FILE
        for path in (*needed_files(variant.source), *([golden] if golden.is_file() else [])):
            copy = work / variant.path / path_in_entry(path.relative_to(variant.source).as_posix())
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        write_tokenizer_files(work / variant.path, variant.info.task)  # a winner of an earlier version
        if variant.path and (file := variant.exported_file):
            readme = export_readme(variant.info, file)
            (work / variant.path / "README.md").write_text(readme, encoding="utf-8")
        elif variant.path:
            write_readme(work / variant.path, read_json(variant.source / "config.json"))
        name_file(work / variant.path)
        for form in packaged_folders(variant.source):
            copy_content(form, work / variant.path / form.name)
            write_tokenizer_files(work / variant.path / form.name, variant.info.task)
    (work / "README.md").write_text(model_card(entry), encoding="utf-8")
    (work / REPORT_FOLDER).mkdir()
    write_pages(work / REPORT_FOLDER, entry.report, _addresses(entry))
    return write_digests(work)


def _addresses(entry: Entry) -> dict[str, str]:
    """Return the folder of each target's winner as the entry's pages name it."""
    return {won.target: f"{entry.name}/{each.path}".rstrip("/") for each in entry.variants for won in each.won}


def packaged_folders(winner: Path) -> list[Path]:
    """Return the folders of further formats within a winner's folder."""
    return sorted(path.parent for path in winner.glob(f"*/{INFO_FILE}"))


def _index_entry(entry: Entry, listed: Digests) -> dict[str, Any]:
    """Describe the main variant as the index always did, and all variants in a list of their own."""
    task = entry.report.task
    return {
        "task": task.name,
        "metric": task.metric,
        **_index_variant(entry.main),
        "target": entry.main.verdicts[0].target,
        "digest": listed.combined,
        "published": datetime.now(UTC).isoformat(timespec="seconds"),
        "variants": [
            {
                "path": variant.path or ".",
                "targets": [one.target for one in variant.won],
                "runs_everywhere": variant.why_not_everywhere is None,
                **_index_variant(variant),
            }
            for variant in entry.variants
        ],
    }


def _index_variant(variant: PublishedVariant) -> dict[str, Any]:
    row, result = variant.row, variant.result
    return {
        "variant": row.variant.name,
        "shape": row.shape,
        "score": result.test.primary.value if result.test else None,
        "p50_ms": result.latency.model.p50.value if result.latency.model else None,
        "bytes": row.footprint.bytes_total if row.footprint else None,
        "batch_sensitive": variant.info.variant.batch_sensitive if variant.info.variant else None,
        "scored_batch": variant.info.variant.scored_batch if variant.info.variant else None,
    }


def _write_index(zoo: Path, models: dict[str, Any]) -> None:
    content = {"schema_version": 1, "models": dict(sorted(models.items()))}
    atomic_write(zoo / INDEX_FILE, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
