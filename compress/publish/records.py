"""Records of published versions: what is in one, how a version is claimed, and how versions are named.

A version `sst2@3` is the record `sst2@3.json` and the folder `sst2@3/`. The record is created exclusively, which claims
the version; it counts once the folder is complete and the record says so, and the folder is never changed after. So two
publishers at once get two versions, and a publisher that was killed leaves what does not count.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field, ValidationError

from compress import format_numbers as fmt
from compress.errors import ModelError, UsageError, first_error
from compress.publish.places import Place, read
from compress.storage.file_names import FileName, check_file_name
from compress.storage.stored_info import Info, up_to

RECORD_SUFFIX = ".json"
UNVERSIONED = "0"
"""The version of an entry that was published before entries had versions: its folder has the name alone."""
MAX_RECORD_BYTES = 1 << 20
CLAIMS = 100
"""Versions in a row that others may claim first."""


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
Finite = Annotated[float, Field(allow_inf_nan=False)]
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
    gate: Line | None = None
    """On that target: passed, undecided, missed, or ruled out. None in records of earlier versions."""
    score: Finite | None = None
    p50_ms: Finite | None = None
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

    @property
    def winner(self) -> VariantRecord | None:
        """The variant that won, whose figures lists show: of several the first; else the one in its root."""
        return next((each for each in self.variants if each.targets), self.main)

    def scored(self, variant: VariantRecord | None) -> str | None:
        """`accuracy 91.3`; None where a variant has no score."""
        if variant is None or variant.score is None:
            return None
        return f"{fmt.metric(self.metric)} {fmt.score(variant.score, self.larger_is_better)}"

    @property
    def in_words(self) -> str:
        """`films@2 of 2026-11-27 (onnx-int8, 0.91 ms, 4.2 MB; accuracy 91.3)`."""
        shown = self.winner
        score = f"; {self.scored(shown)}" if shown and shown.score is not None else ""
        figures = f" ({shown.in_words}{score})" if shown else ""
        return f"{self.address} of {self.published:%Y-%m-%d}{figures}"

    def content(self) -> bytes:
        """Return it as its file has it."""
        return (self.model_dump_json(indent=1, exclude_defaults=True) + "\n").encode()


def parse_record(content: bytes, source: str, name: str | None = None, version: str | None = None) -> Record:
    """Parse a record; one that calls itself by another name or version than its file is refused."""
    try:
        record = Record.model_validate_json(content)
    except ValidationError as error:
        raise ModelError(f"{source} is not the record of a published model: {first_error(error)}.") from error
    if (name, version) not in ((None, None), (record.name, record.version)):
        raise ModelError(f"{source} is the record of {record.address}, expected that of {name}@{version}.")
    return record


def newest_of(versions: Sequence[Record]) -> Record | None:
    """Return the newest version that was not withdrawn, of versions from the oldest to the newest."""
    return next((each for each in reversed(versions) if each.state == "published"), None)


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


def is_record(file: str) -> bool:
    """Whether a file of a place is a record, by its name."""
    return file.endswith(RECORD_SUFFIX) and "@" in file and is_address(file.removesuffix(RECORD_SUFFIX))


def names_in(place: Place) -> set[str]:
    """Return the names that have a record; none of a place that cannot be listed."""
    return {file.partition("@")[0] for file in place.files() or () if is_record(file)}


def claim(place: Place, record: Record, wanted: str | None = None) -> Record:
    """Create the record of a version, which nobody else then gets; return it.

    Args:
        place: where.
        record: what will be published; its version is chosen here.
        wanted: the version to claim; by default the number after the last one. One that was claimed for the same
            files and not finished is taken over: its publisher was killed, or writes the same.
    """
    for _ in range(CLAIMS):
        taken = records_of(place, record.name)
        now = max([datetime.now(UTC), *(each.published + timedelta(microseconds=1) for each in taken.values())])
        unfinished = next(
            (each for each in taken.values() if each.state == "claimed" and each.digest == record.digest), None
        )
        if unfinished is not None and wanted in (None, unfinished.version):
            return record.model_copy(update=unfinished.model_dump(include={"version", "state", "published"}))
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
    raise ModelError(
        f"{place.address} says {CLAIMS} times that the next version of {record.name} exists, and does not list it."
    )


def records_of(place: Place, name: str) -> dict[str, Record]:
    """Return every record of a name by its version, those of versions that do not count too."""
    taken = {}
    for file in place.files() or ():
        if not is_record(file) or not file.startswith(f"{name}@"):
            continue
        version = split_address(file.removesuffix(RECORD_SUFFIX))[1] or ""
        content = read(place, file, MAX_RECORD_BYTES)
        taken[version] = parse_record(content, f"{place.address}/{file}", name, version)
    return taken
