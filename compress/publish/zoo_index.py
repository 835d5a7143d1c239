"""All versions of a place: index.json and index.html, made of the records, and what a name means there.

The index is a cache: where a place can be listed, each record that is not in it as it is now is read again. Where it
cannot (http), the index is all there is.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import ValidationError

from compress import format_numbers as fmt
from compress.errors import ModelError, first_error, nearest
from compress.publish.places import Absent, Place, read
from compress.publish.records import (
    MAX_RECORD_BYTES,
    RECORD_SUFFIX,
    UNVERSIONED,
    Record,
    is_record,
    newest_of,
    parse_record,
    records_of,
    split_address,
)
from compress.storage.file_names import FileName
from compress.storage.stored_info import Info, up_to

INDEX_FILE, PAGE_FILE = "index.json", "index.html"
MAX_INDEX_BYTES = 1 << 26
"""That of tens of thousands of versions."""


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
        return newest_of(self.of(name))


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
    found = {each.removesuffix(RECORD_SUFFIX): size for each, size in files.items() if is_record(each)}
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
    is_listed = place.files() is not None
    try:
        stored = _stored_index(place).of(name)
    except Absent:
        stored = []
    except ModelError:
        if not is_listed:
            raise
        stored = []
    if not is_listed:
        return stored
    versions = [each for each in stored if each.version == UNVERSIONED]
    versions += (each for each in records_of(place, name).values() if each.state != "claimed")
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
    newest = newest_of(versions)
    if newest is None:
        raise ModelError(f"every version of {name} in {place} was withdrawn; the last: {versions[-1].why}")
    return newest


def write_index(place: Place) -> None:
    """Write the page and index.json until they hold all that is there, as another publisher may finish meanwhile."""
    index = read_index(place)
    while True:
        place.write(PAGE_FILE, index_page(index).encode())
        content = {"schema_version": index.schema_version, **index.model_dump(mode="json", exclude_defaults=True)}
        place.write(INDEX_FILE, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
        now = read_index(place)
        if now == index:
            break
        index = now


def mend_index(place: Place) -> bool:
    """Write index.json where it lacks what the records say, as after a publisher that was killed; return whether."""
    try:
        is_whole = _stored_index(place) == read_index(place)
    except ModelError:
        is_whole = False
    if not is_whole:
        write_index(place)
    return not is_whole


def index_page(index: Index) -> str:
    """Return index.html: every version that was not withdrawn, the newest of each name marked; it works offline."""
    from compress.report.pages.render import page_environment, page_script, script_hash

    newest = {record.name: record.address for record in index.records if record.state == "published"}
    shown = [each for each in reversed(index.records) if each.state == "published"]
    rows = [_page_row(record, newest[record.name] == record.address) for record in shown]
    script = page_script("table_filter.js")
    return (
        page_environment(escape=True)
        .get_template("zoo.html.j2")
        .render(rows=rows, tasks=sorted({row["task"] for row in rows}), script=script, script_hash=script_hash(script))
    )


def _page_row(record: Record, is_newest: bool) -> dict[str, Any]:
    shown = record.winner
    score, p50, size = (shown.score, shown.p50_ms, shown.bytes) if shown else (None, None, None)
    return {
        "name": record.name,
        "version": "" if record.version == UNVERSIONED else record.version,
        "is_newest": is_newest,
        "page": f"{record.folder}/report/report.html",
        "task": record.task or "–",
        "kind": record.kind.replace("_", " "),
        "variant": shown.variant if shown else "–",
        "gate": shown.gate if shown and shown.gate != "passed" else None,
        "more": [each.variant for each in record.variants if each is not shown],
        "metric": fmt.metric(record.metric) if record.metric else "",
        "score": fmt.score(score, record.larger_is_better),
        "score_value": score,
        "p50": fmt.milliseconds(p50),
        "p50_value": p50,
        "size": fmt.size(size),
        "size_value": size,
        "cpu": record.cpu or "",
        "date": f"{record.published:%Y-%m-%d}",
        "signed": record.signed,
    }


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
