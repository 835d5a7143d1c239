"""What a place knows of the versions in it: a record each, and an index that is made of the records.

A version `sst2@3` is the record `sst2@3.json` and the folder `sst2@3/`. The record is created exclusively, which claims
the version; it counts once the folder is complete and the record says so, and the folder is never changed after. So two
publishers at once get two versions, and a publisher that was killed leaves what does not count. The index.json of a
place holds all its records in one file, for whoever cannot list it, or wants to read one file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field, ValidationError

from compress import format_numbers as fmt
from compress.errors import ModelError, UsageError, first_error, nearest
from compress.publish.places import Absent, Place, read
from compress.storage.file_names import FileName, check_file_name
from compress.storage.stored_info import Info, up_to

INDEX_FILE = "index.json"
RECORD_SUFFIX = ".json"
UNVERSIONED = "0"
"""The version of an entry that was published before entries had versions: its folder has the name alone."""
MAX_RECORD_BYTES = 1 << 20
MAX_INDEX_BYTES = 1 << 26
"""That of tens of thousands of versions."""


def check_version(version: str) -> str:
    """Return ``version`` if it may be a version's; raise ValueError otherwise."""
    if len(version) > 50 or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", version):
        limits = "may hold up to 50 letters, digits, '.', '_' and '-' and starts with a letter or digit"
        raise ValueError(f"{limits}, got {version[:80]!r}")
    return version


def _check_line(text: str) -> str:
    if len(text) > 300 or not text.isprintable():
        raise ValueError(f"may hold up to 300 printable characters, got {text[:80]!r}")
    return text


def _check_time(time: datetime) -> datetime:
    if not 2000 <= time.year < 3000:
        raise ValueError(f"is a time of this millennium, got the year {time.year}")
    return time


Line = Annotated[str, AfterValidator(_check_line)]
"""A text of others that is shown in one line."""
Figure = Annotated[float, Field(allow_inf_nan=False)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
VariantPath = Annotated[str, Field(pattern=r"^(\.|variants/[A-Za-z0-9_][A-Za-z0-9._+-]*)$")]


class VariantRecord(Info):
    """One variant of a version, with its figures on the first target that it won."""

    path: VariantPath
    """Its folder within the version's; `.` for the one in its root."""
    variant: Line
    format: Line = "onnx"
    targets: tuple[Line, ...] = ()
    """Those that it won."""
    runs_everywhere: bool = False
    shape: Line | None = None
    score: Figure | None = None
    p50_ms: Figure | None = None
    bytes: Annotated[int, Field(ge=0)] | None = None
    batch_sensitive: bool | None = None
    scored_batch: int | None = None
    instructions: tuple[Line, ...] = ()
    """Of the CPU, without which it does not run."""
    libraries: Mapping[Line, Line] = {}
    """Those that open it, any one of them, with the lowest version of each."""

    @property
    def name(self) -> str:
        """What `--variant` calls it: its folder's name, or `root`."""
        return "root" if self.path == "." else self.path.rpartition("/")[2]

    @property
    def in_words(self) -> str:
        """`onnx-int8, 0.91 ms, 4.2 MB`."""
        p50 = [] if self.p50_ms is None else [fmt.milliseconds(self.p50_ms)]
        return ", ".join([self.variant, *p50, *([] if self.bytes is None else [fmt.size(self.bytes)])])


class Record(Info):
    """One version of an entry."""

    schema_version: Annotated[int, up_to(1)] = 1
    name: FileName
    version: Annotated[str, AfterValidator(check_version)]
    state: Literal["claimed", "published", "withdrawn"] = "published"
    """Claimed: its files are not complete, and it does not count."""
    published: Annotated[AwareDatetime, AfterValidator(_check_time)]
    """When it was claimed."""
    digest: Sha256
    """Of its digests.json, which has those of all its files; of entries without versions `Digests.combined`."""
    files_bytes: int = Field(default=0, ge=0)
    made_by: Line = ""
    """The version of compress."""
    task: Line = ""
    kind: Line = ""
    metric: Line = ""
    larger_is_better: bool = True
    """Whether a larger score is a better one."""
    language: tuple[Line, ...] = ()
    license: Line | None = None
    target: Line | None = None
    """Whose figures the variant in the root has."""
    cpu: Line | None = None
    """That was timed."""
    signed: bool = False
    why: Line | None = None
    """Of a withdrawal."""
    variants: tuple[VariantRecord, ...] = ()

    @property
    def address(self) -> str:
        """`sst2@3`."""
        return f"{self.name}@{self.version}"

    @property
    def file(self) -> str:
        """Where a place has it."""
        return f"{self.address}{RECORD_SUFFIX}"

    @property
    def folder(self) -> str:
        """Where a place has its files."""
        return self.name if self.version == UNVERSIONED else self.address

    @property
    def main(self) -> VariantRecord | None:
        """The variant in its root."""
        return next((each for each in self.variants if each.path == "."), None)

    def scored(self, variant: VariantRecord | None) -> str | None:
        """`accuracy 91.3`; None where a variant has no score."""
        if variant is None or variant.score is None:
            return None
        return f"{fmt.metric(self.metric)} {fmt.score(variant.score, self.larger_is_better)}"

    @property
    def in_words(self) -> str:
        """`films@2 of 2026-11-27 (onnx-int8, 0.91 ms, 4.2 MB; accuracy 0.913)`."""
        main = self.main
        score = f"; {self.scored(main)}" if main and main.score is not None else ""
        figures = f" ({main.in_words}{score})" if main else ""
        return f"{self.address} of {self.published:%Y-%m-%d}{figures}"

    def content(self) -> bytes:
        """Return it as its file has it."""
        return (self.model_dump_json(indent=1, exclude_defaults=True) + "\n").encode()


class _Listed(Info):
    """A record in the index, with the size of its file, which every change of a record changes."""

    size: int
    record: Record


class Index(Info):
    """The content of index.json."""

    schema_version: Annotated[int, up_to(2)] = 2
    versions: Mapping[str, _Listed] = {}
    """By address, in the order of names and then from the oldest to the newest."""

    @property
    def records(self) -> list[Record]:
        """Return all records that count, withdrawn ones too."""
        return [each.record for each in self.versions.values()]

    def of(self, name: str) -> list[Record]:
        """Return the versions of one name, the oldest first."""
        return [each for each in self.records if each.name == name]

    def newest(self, name: str) -> Record | None:
        """Return the newest version that was not withdrawn."""
        return next((each for each in reversed(self.of(name)) if each.state == "published"), None)


def parse_record(content: bytes, source: str, name: str | None = None, version: str | None = None) -> Record:
    """Parse a record; one that calls itself by another name or version than its file is refused."""
    try:
        record = Record.model_validate_json(content)
    except ValidationError as error:
        raise ModelError(f"{source} is not the record of a published model: {first_error(error)}.") from error
    if (name, version) not in ((None, None), (record.name, record.version)):
        raise ModelError(f"{source} is the record of {record.address}, expected that of {name}@{version}.")
    return record


def split_address(address: str) -> tuple[str, str | None]:
    """Return the name and the version of `sst2@3` or `sst2`; a UsageError where it is neither."""
    name, at, version = address.partition("@")
    try:
        check_file_name(name)
    except ValueError as error:
        raise UsageError(f"the name of a published model {error}.") from error
    try:
        return name, check_version(version) if at else None
    except ValueError as error:
        raise UsageError(f"the version of a published model {error}.") from error


def is_address(text: str) -> bool:
    """Whether a text may be `name` or `name@version`."""
    try:
        split_address(text)
    except UsageError:
        return False
    return True


def read_index(place: Place) -> Index:
    """Return all versions of a place that count: what its records say, from index.json where that still agrees.

    Where a place cannot be listed, the index is all there is.
    """
    files = place.files()
    if files is None:
        return _stored_index(place)
    try:
        stored = _stored_index(place)
    except ModelError:  # it is written again with the next version
        stored = Index()
    found = {each.removesuffix(RECORD_SUFFIX): size for each, size in files.items() if _is_record(each)}
    listed: dict[str, _Listed] = {}
    for address, size in found.items():
        known = stored.versions.get(address)
        if known is None or known.size != size:
            name, version = split_address(address)
            record = parse_record(
                read(place, f"{address}{RECORD_SUFFIX}", MAX_RECORD_BYTES), f"{place.address}/{address}", name, version
            )
            known = _Listed(size=size, record=record)
        listed[address] = known
    listed |= {address: each for address, each in stored.versions.items() if each.record.version == UNVERSIONED}
    return _sorted({address: each for address, each in listed.items() if each.record.state != "claimed"})


def _is_record(file: str) -> bool:
    return file.endswith(RECORD_SUFFIX) and "@" in file and is_address(file.removesuffix(RECORD_SUFFIX))


def names_in(place: Place) -> set[str]:
    """Return the names that have a record; none of a place that cannot be listed."""
    return {file.partition("@")[0] for file in place.files() or () if _is_record(file)}


def _sorted(listed: Mapping[str, _Listed]) -> Index:
    order = sorted(listed.items(), key=lambda item: (item[1].record.name, item[1].record.published, item[0]))
    return Index(versions=dict(order))


def _stored_index(place: Place) -> Index:
    """Return the index.json of a place, that of earlier versions of compress too; raise Absent without one."""
    where = f"{place.address}/{INDEX_FILE}"
    content = read(place, INDEX_FILE, MAX_INDEX_BYTES)
    try:
        older = _UnversionedIndex.model_validate_json(content)
        if older.schema_version == 1:
            return _sorted({f"{name}@{UNVERSIONED}": _unversioned(name, entry) for name, entry in older.models.items()})
        index = Index.model_validate_json(content)
    except ValidationError as error:
        raise ModelError(f"{where} is not the index of a place: {first_error(error)}.") from error
    for address, each in index.versions.items():
        if address != each.record.address:
            raise ModelError(f"{where} lists {each.record.address} as {address[:80]!r}.")
    return index


class _UnversionedIndex(Info):
    """The index before entries had versions."""

    schema_version: int
    models: Mapping[FileName, Mapping[str, Any]] = {}


def _unversioned(name: str, entry: Mapping[str, Any]) -> _Listed:
    """Return the entry of an earlier index as a version."""
    first = {"path": ".", "targets": [entry["target"]] if entry.get("target") else [], **entry}
    record = Record.model_validate(
        {
            **{key: entry[key] for key in ("task", "metric", "target", "digest", "published") if key in entry},
            "name": name,
            "version": UNVERSIONED,
            "variants": entry.get("variants") or [first],
        }
    )
    return _Listed(size=0, record=record)


def versions_of(place: Place, name: str) -> list[Record]:
    """Return the versions of one name that count, the oldest first; reads no other records."""
    try:
        stored = _stored_index(place).of(name)
    except (Absent, ModelError) as error:
        if place.files() is None and not isinstance(error, Absent):
            raise
        stored = []
    if place.files() is None:
        return stored
    versions = [each for each in stored if each.version == UNVERSIONED]
    versions += (each for each in _taken(place, name).values() if each.state != "claimed")
    return sorted(versions, key=lambda each: (each.published, each.version))


def find_version(place: Place, name: str, version: str | None) -> Record | None:
    """Return what `name` or `name@version` means in a place; None where it has no version of that name."""
    versions = versions_of(place, name)
    if version is not None and all(each.version != version for each in versions):
        try:  # an index may be older than the record
            content = read(place, f"{name}@{version}{RECORD_SUFFIX}", MAX_RECORD_BYTES)
        except Absent:
            pass
        else:
            versions.append(parse_record(content, f"{place.address}/{name}@{version}", name, version))
    if any((each.version, each.state) == (version, "claimed") for each in versions):
        raise ModelError(f"{name}@{version} was begun in {place.address} and is not finished: it does not count.")
    counted = [each for each in versions if each.state != "claimed"]
    return choose(counted, place.address, name, version) if counted else None


def choose(versions: Sequence[Record], place: str, name: str, version: str | None) -> Record:
    """Return the version that an address names of those there are, the newest where it names none."""
    if not versions:
        raise ModelError(f"{place} has no published model called '{name}'.", hint=f"compress zoo ls {place}")
    if version is not None:
        chosen = next((each for each in versions if each.version == version), None)
        if chosen is None:
            known = [each.version for each in versions]
            raise ModelError(f"{place} has no version '{version}' of {name}{nearest(version, known)}")
        return chosen
    newest = next((each for each in reversed(versions) if each.state == "published"), None)
    if newest is None:
        raise ModelError(f"every version of {name} in {place} was withdrawn; the last: {versions[-1].why}")
    return newest


def claim(place: Place, record: Record, wanted: str | None = None) -> Record:
    """Create the record of a version, which nobody else then gets; return it.

    Args:
        place: where.
        record: what will be published; its version is chosen here.
        wanted: the version to claim; by default the number after the last one. One that was claimed for the same
            files and not finished is taken over: its publisher was killed, or writes the same.
    """
    while True:
        taken = _taken(place, record.name)
        now = max([datetime.now(UTC), *(each.published + timedelta(microseconds=1) for each in taken.values())])
        unfinished = next(
            (each for each in taken.values() if each.state == "claimed" and each.digest == record.digest), None
        )
        if unfinished is not None and wanted in (None, unfinished.version):
            return unfinished
        version = wanted or str(1 + max((int(each) for each in taken if each.isdecimal()), default=0))
        claimed = record.model_copy(update={"version": version, "state": "claimed", "published": now})
        if version not in taken and place.create(claimed.file, claimed.content()):
            return claimed
        if wanted is not None:
            there = taken.get(wanted) or claimed
            state = {"claimed": "was begun and not finished, with other files", "withdrawn": "was withdrawn"}
            raise UsageError(
                f"{record.name}@{wanted} exists in {place.address} and is never overwritten: it"
                f" {state.get(there.state, f'holds {there.in_words}')}.",
                hint="choose another --version, or none for the next number",
            )


def _taken(place: Place, name: str) -> dict[str, Record]:
    """Return every version of a name by its version, those that do not count too."""
    taken = {}
    for file in place.files() or ():
        if not _is_record(file) or not file.startswith(f"{name}@"):
            continue
        version = split_address(file.removesuffix(RECORD_SUFFIX))[1] or ""
        content = read(place, file, MAX_RECORD_BYTES)
        taken[version] = parse_record(content, f"{place.address}/{file}", name, version)
    return taken


def write_index(place: Place) -> Index:
    """Write the index again until it holds all that is there; another publisher may finish meanwhile."""
    index = read_index(place)
    while True:
        content = {"schema_version": index.schema_version, **index.model_dump(mode="json", exclude_defaults=True)}
        place.write(INDEX_FILE, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
        now = read_index(place)
        if now == index:
            return index
        index = now


def select(records: Iterable[Record], **filters: Any) -> Sequence[Record]:
    """Return the records that pass every filter: facts by their names, and limits that one of its variants keeps."""
    limits = {"max_size": "bytes", "max_p50": "p50_ms", "min_score": "score"}

    def passes(record: Record) -> bool:
        for name, wanted in filters.items():
            if wanted is None:
                continue
            if name in limits:
                sign = -1 if name == "min_score" and record.larger_is_better else 1
                values = [getattr(each, limits[name]) for each in record.variants]
                if not any(value is not None and sign * value <= sign * wanted for value in values):
                    return False
            elif name == "language":
                if wanted not in record.language:
                    return False
            elif getattr(record, name) != wanted:
                return False
        return True

    return [each for each in records if passes(each)]
