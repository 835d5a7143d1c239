"""Publishing into a zoo: the winners of a run become a version of an entry, complete before it counts.

An entry has the Hugging Face layout, with model card, report and checksums; every folder of a variant in it is complete
on its own. What a version is, and why two publishers at once lose nothing, is said in `records.py`.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from compress import __version__
from compress.data.tokenizer import read_json
from compress.environment import require
from compress.errors import CompressError, UsageError
from compress.export.other_tools import name_file
from compress.export.runners import cascade_readme, export_readme
from compress.measure.resources.footprint import needed_files
from compress.model_folder.cascade_info import is_cascade, model_folders
from compress.model_folder.model_info import GOLDEN_FILE, INFO_FILE
from compress.model_folder.model_readme import README_FILE, TITLE, write_readme
from compress.model_folder.sentence_transformers_files import default_prompt
from compress.model_folder.tokenizer_files import write_tokenizer_files
from compress.publish.entry import Entry, PublishedVariant, make_entry, path_in_entry
from compress.publish.measured import measured_of, write_measured
from compress.publish.model_card import model_card
from compress.publish.places import Place, check_writable, read
from compress.publish.records import (
    UNVERSIONED,
    Record,
    VariantRecord,
    check_version,
    claim,
    newest_of,
    split_address,
)
from compress.publish.signatures import Signer
from compress.publish.verify import DIGESTS_FILE, MAX_DIGESTS_BYTES, Digests, parse_digests, write_digests
from compress.publish.zoo_index import choose, mend_index, versions_of, write_index
from compress.report.pages.render import write_pages
from compress.report.report_schema import REPORT_FILE, Report, report_json
from compress.report.retention import larger_is_better
from compress.storage.atomic_write import copy_content
from compress.storage.file_digests import file_digest
from compress.storage.file_names import check_file_name

REPORT_FOLDER = "report"


def publish_entry(
    winners: Mapping[str, Path],
    report: Report,
    place: Place,
    name: str,
    root: Path | None = None,
    *,
    version: str | None = None,
    signer: Signer | None = None,
) -> tuple[Record, bool]:
    """Publish the winners of a run as a version of ``name``; return its record, and whether anything was written.

    The first target's winner fills the entry's root, where the hub, optimum and transformers.js expect it. A different
    winner of another target becomes a complete model folder in ``variants/<model>-<variant>/``. Nothing is written
    where the newest version has the same files, and a signature if there is to be one.

    Args:
        winners: the folder of each target's winner, by target title.
        report: the run's report, published with the entry.
        place: where; created if it does not exist.
        name: the entry's name.
        root: the folder of the best variant that runs everywhere, where the first winner does not; it fills the root.
        version: by default the next number.
        signer: signs the digests of every folder.
    """
    _check_names(name, version)
    check_writable(place)
    entry = make_entry(winners, report, name, root)
    with tempfile.TemporaryDirectory(prefix="compress-publish-") as scratch:
        folder = Path(scratch) / name
        folder.mkdir()
        listed = write_entry(folder, entry)
        record = _record(entry, folder, listed, signer)
        newest = newest_of(versions_of(place, name))
        if newest is not None and newest.digest == record.digest and newest.signed >= record.signed:
            mend_index(place)
            return newest, False
        record = claim(place, record, version)
        if signer is not None:
            for path in sorted(folder.rglob(DIGESTS_FILE)):
                signer.sign(path, f"compress {record.address} {path.parent.relative_to(folder).as_posix()}")
        place.upload(folder, record.folder)
    record = record.model_copy(update={"state": "published"})
    place.write(record.file, record.content())
    write_index(place)
    return record, True


def _check_names(name: str, version: str | None) -> None:
    try:
        check_file_name(name)
    except ValueError as error:
        raise UsageError(f"the name of a published model {error}.", hint="choose another one with --name") from error
    try:
        if version is not None and check_version(version) == UNVERSIONED:
            raise ValueError(f"is not '{UNVERSIONED}', which is that of entries without versions")
    except ValueError as error:
        raise UsageError(f"the version of a published model {error}.") from error


def find_published(
    winners: Mapping[str, Path], report: Report, place: Place, name: str, root: Path | None = None
) -> Record | None:
    """Return the newest version if it holds exactly these winners with this report."""
    try:
        newest = newest_of(versions_of(place, name))
        if newest is None:
            return None
        content = read(place, f"{newest.folder}/{DIGESTS_FILE}", MAX_DIGESTS_BYTES)
        listed = parse_digests(content, f"{newest.address}/{DIGESTS_FILE}").files
        written = hashlib.sha256(report_json(report).encode()).hexdigest()
        same_report = listed[f"{REPORT_FOLDER}/{REPORT_FILE}"].sha256 == written
        variants = make_entry(winners, report, name, root).variants
        same = same_report and {each.path or "." for each in variants} == {each.path for each in newest.variants}
        infos = {each.source / INFO_FILE: f"{each.path}/{INFO_FILE}".lstrip("/") for each in variants}
        return newest if same and all(listed[to].sha256 == file_digest(path) for path, to in infos.items()) else None
    except (OSError, KeyError, CompressError):
        return None


def withdraw(place: Place, address: str, why: str) -> Record:
    """Mark a version as withdrawn: `name` no longer means it, and whoever names it gets the reason. Its files stay."""
    require("jinja2", "report")  # for the place's page, which is written last
    name, version = split_address(address)
    if version is None:
        raise UsageError(f"name the version that is withdrawn: {name}@VERSION.")
    check_writable(place)
    record = choose(versions_of(place, name), place.address, name, version)
    if record.version == UNVERSIONED:
        raise UsageError(f"{address} was published before entries had versions, and cannot be withdrawn: remove it.")
    if record.state == "withdrawn":
        if mend_index(place) and record.why == why:
            return record
        raise UsageError(f"{record.address} is withdrawn already: {record.why}")
    withdrawn = Record.model_validate(record.model_dump() | {"state": "withdrawn", "why": why})
    place.write(withdrawn.file, withdrawn.content())
    write_index(place)
    return withdrawn


def write_entry(work: Path, entry: Entry) -> Digests:
    """Write the files of an entry into an empty folder; every folder of a variant has checksums of its own."""
    for variant in entry.variants:
        folder, golden = work / variant.path, [each / GOLDEN_FILE for each in model_folders(variant.source)]
        for path in (*needed_files(variant.source), *(each for each in golden if each.is_file())):
            copy = folder / path_in_entry(path.relative_to(variant.source).as_posix())
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        write_tokenizer_files(folder, variant.info.task)  # a winner of an earlier version
        if variant.path and (file := variant.exported_file):
            readme = export_readme(variant.info, file, default_prompt(folder))
            (folder / "README.md").write_text(readme, encoding="utf-8")
        elif variant.path and is_cascade(variant.info):
            (folder / "README.md").write_text(cascade_readme(variant.source), encoding="utf-8")
        elif variant.path:
            write_readme(folder, read_json(variant.source / "config.json"))
        name_file(folder)
        for form in packaged_folders(variant.source):
            copy_content(form, folder / form.name)
            write_tokenizer_files(folder / form.name, variant.info.task)
        measured = measured_of(entry, variant)
        write_measured(folder, measured)
        if variant.path:
            _add_to_readme(folder, measured.section(larger_is_better(entry.report)))
            write_digests(folder)
    (work / "README.md").write_text(model_card(entry), encoding="utf-8")
    (work / REPORT_FOLDER).mkdir()
    write_pages(work / REPORT_FOLDER, entry.report, _addresses(entry))
    return write_digests(work)


def _add_to_readme(folder: Path, section: str) -> None:
    """Add a section to the README.md of a variant, which plain model folders do not have yet."""
    readme = folder / README_FILE
    before = readme.read_text(encoding="utf-8") if readme.is_file() else TITLE
    readme.write_text(f"{before.rstrip()}\n\n{section}", encoding="utf-8")


def _addresses(entry: Entry) -> dict[str, str]:
    """Return the folder of each target's winner as the entry's pages name it."""
    return {won.target: f"{entry.name}/{each.path}".rstrip("/") for each in entry.variants for won in each.won}


def packaged_folders(winner: Path) -> list[Path]:
    """Return the folders of further formats within a winner's folder."""
    return sorted(path.parent for path in winner.glob(f"*/{INFO_FILE}"))


def _record(entry: Entry, folder: Path, listed: Digests, signer: Signer | None) -> Record:
    """Describe a version; its number is chosen when it is claimed."""
    report, stated = entry.report, entry.report.recipe.get("publish") or {}
    machine = report.surroundings or report.machine
    return Record(
        name=entry.name,
        version="1",
        published="2000-01-01T00:00:00Z",
        digest=file_digest(folder / DIGESTS_FILE),
        files_bytes=sum(file.bytes for file in listed.files.values()),
        made_by=__version__,
        task=report.task.name,
        kind=report.task.kind,
        metric=report.task.metric,
        larger_is_better=larger_is_better(report),
        language=stated.get("language") or (),
        license=stated.get("license"),
        target=entry.main.verdicts[0].target,
        cpu=machine.cpu,
        signed=signer is not None,
        variants=tuple(map(_variant_record, entry.variants)),
    )


def _variant_record(variant: PublishedVariant) -> VariantRecord:
    row, result, held = variant.row, variant.result, variant.info.variant
    p50 = result.latency.typical()
    return VariantRecord(
        path=variant.path or ".",
        variant=row.variant.name,
        format=row.variant.format,
        targets=tuple(one.target for one in variant.won),
        runs_everywhere=variant.why_not_everywhere is None,
        shape=row.shape,
        gate=result.gate and result.gate.state,
        score=result.test.primary.value if result.test else None,
        p50_ms=p50 and p50.value,
        bytes=row.bytes_total,
        batch_sensitive=held.batch_sensitive if held else None,
        scored_batch=held.scored_batch if held else None,
        instructions=held.instructions if held else (),
        libraries=held.libraries if held else {},
    )
