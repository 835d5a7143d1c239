"""Compares a published entry with its digests.json, the sha256 and size of every file, which is read without trust.

Checksums are stored with the files: they prove that a copy is complete and unchanged since it was published, not who
published it. Before a folder predicts, sizes are always checked, and checksums once per file and machine. Neither torch
nor the hub's client is needed.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, ValidationError, field_validator

from compress.errors import ModelError, first_error
from compress.publish.signatures import SIGNATURE_SUFFIX
from compress.storage.atomic_write import atomic_write
from compress.storage.file_digests import combined_digest, digests, file_digest
from compress.storage.file_names import cache_folder
from compress.storage.stored_info import Info, up_to

DIGESTS_FILE = "digests.json"
MAX_DIGESTS_BYTES = 1 << 20
"""An entry has tens of files; a list of this size would name about 8,000."""
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9 ._+-]*[A-Za-z0-9_+-])?"
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""Names that are devices on Windows."""


def _check_path(path: str) -> str:
    if any(_RESERVED.match(part) for part in path.split("/")):
        raise ValueError("holds the name of a device of Windows")
    return path


RelativePath = Annotated[str, Field(pattern=rf"^{_PART}(/{_PART})*$", max_length=250), AfterValidator(_check_path)]
"""A path that stays within its folder and is not hidden, on any system."""
VARIANTS_FOLDER = "variants"
"""Holds the variants of an entry except the first, each in a folder that opens on its own."""
PULLED_FILE = "pulled.json"
"""Where a folder was pulled from; of the puller's machine and no part of the entry."""


class FileDigest(Info):
    """Checksum and size of one published file."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)


class Digests(Info):
    """The content of digests.json."""

    schema_version: Annotated[int, up_to(1)] = 1
    files: Mapping[RelativePath, FileDigest] = Field(min_length=1)

    @field_validator("files")
    @classmethod
    def _check_names(cls, files: Mapping[str, FileDigest]) -> Mapping[str, FileDigest]:
        """Refuse names that would be one file, or a file and a folder, on some system."""
        folded = {name.lower() for name in files}
        above = {parent.as_posix().lower() for name in files for parent in PurePosixPath(name).parents}
        if len(folded) < len(files) or folded & above or DIGESTS_FILE in files:
            raise ValueError("names one file twice, or as a folder too")
        return files

    @property
    def combined(self) -> str:
        """One digest over the names and checksums of all files."""
        return combined_digest({name: file.sha256 for name, file in self.files.items()})


def write_digests(folder: Path) -> Digests:
    """Write digests.json for all other files of ``folder`` and return its content."""
    files = {
        name: FileDigest(sha256=digest, bytes=(folder / name).stat().st_size)
        for name, digest in digests(folder).items()
        if name != DIGESTS_FILE
    }
    content = Digests(files=files)
    (folder / DIGESTS_FILE).write_text(content.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return content


def read_digests(folder: Path) -> Digests:
    """Read digests.json of a published entry's folder."""
    path = folder / DIGESTS_FILE
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_DIGESTS_BYTES + 1)
    except FileNotFoundError as error:
        hint = "compress publish writes one with every entry of a zoo"
        raise ModelError(f"{folder} has no {DIGESTS_FILE}, so there is nothing to check against.", hint) from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    return parse_digests(content, str(path))


def parse_digests(content: bytes, source: str) -> Digests:
    """Parse the content of digests.json; ``source`` names it in errors."""
    if len(content) > MAX_DIGESTS_BYTES:
        raise ModelError(f"{source} is not a list of digests: it has more than {MAX_DIGESTS_BYTES:,} bytes.")
    try:
        return Digests.model_validate_json(content)
    except ValidationError as error:
        raise ModelError(f"{source} is not a list of digests: {first_error(error)}") from error


IGNORED = (".gitattributes", ".cache", ".gitignore", PULLED_FILE)
"""What the hub's client, git and `compress pull` add to a downloaded folder."""


def verify(folder: Path | str) -> int:
    """Compare every file of a published entry with its checksum; return the number of files.

    A file that is missing, differs or is not listed, and any symbolic link, is an error; one message names them all.
    """
    folder = Path(folder)
    if faults := [*differences(folder), *additions(folder)]:
        raise ModelError("\n  ".join([f"{folder} is not what was published:", *faults]))
    return len(read_digests(folder).files)


def additions(folder: Path) -> Iterator[str]:
    """Describe each file that digests.json does not list."""
    known = {*read_digests(folder).files, DIGESTS_FILE}
    for path in _contents(folder):
        name = path.relative_to(folder).as_posix()
        is_file = not (path.is_symlink() or path.is_dir() or path.name == DIGESTS_FILE + SIGNATURE_SUFFIX)
        if is_file and name not in known:
            yield f"{name} was not published"


def differences(folder: Path, digest_of: Callable[[Path], str] = file_digest) -> Iterator[str]:
    """Describe each symbolic link, and each file of digests.json that is missing or differs.

    Of a folder that was pulled a variant may be absent as a whole: one is pulled, the one that fits.
    """
    for path in _contents(folder):
        if path.is_symlink():
            yield f"{path.relative_to(folder).as_posix()} is a symbolic link; expected a file or folder of its own"
    pulled = (folder / PULLED_FILE).is_file()
    for name, file in read_digests(folder).files.items():
        path, variant = folder / name, variant_folder(name)
        if pulled and variant and not (folder / variant).exists():
            continue
        if not path.is_file():
            yield f"{name} is missing"
        elif path.stat().st_size != file.bytes:
            yield f"{name} has {path.stat().st_size:,} bytes, {file.bytes:,} were published"
        elif digest_of(path) != file.sha256:
            yield f"{name} differs from what was published"


def variant_folder(name: str) -> str | None:
    """Return the folder of the variant that a file of an entry belongs to; None for one of the root's."""
    parts = PurePosixPath(name).parts
    return "/".join(parts[:2]) if len(parts) > 2 and parts[0] == VARIANTS_FOLDER else None


def _contents(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.relative_to(folder).parts[0] not in IGNORED]


CACHE_FILE = "verified.json"
MAX_CACHED = 2_000
"""Files whose checksums are cached; the oldest are removed first."""


class Checksums(BaseModel):
    """The cache: checksums by path, size and time of change."""

    schema_version: int = 1
    files: dict[str, str] = {}


def find_damage(folder: Path) -> str | None:
    """Describe the first file that differs from digests.json; None where all agree or there is no such list."""
    if not (folder / DIGESTS_FILE).is_file():
        return None
    cache = cache_folder() / CACHE_FILE
    try:
        computed = Checksums.model_validate_json(cache.read_bytes()).files
    except (OSError, ValidationError):
        computed = {}
    count = len(computed)

    def digest_once(path: Path) -> str:
        found = path.stat()  # the time of the last change cannot be set
        key = f"{path.resolve()} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
        if key not in computed:
            computed[key] = file_digest(path)
        return computed[key]

    try:
        damage = next(differences(folder, digest_once), None)
    except ModelError as error:
        return error.message.rstrip(".")
    if len(computed) > count:
        with suppress(OSError):  # without a cache, files are read again next time
            atomic_write(cache, Checksums(files=dict([*computed.items()][-MAX_CACHED:])).model_dump_json())
    return damage
