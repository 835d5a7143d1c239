"""Gets a published model: from a zoo in a folder, behind fsspec or at an http(s) address, or from the hub.

Of the variants of a version it gets the one that fits this machine. Nothing is trusted before it was compared: the list
of digests with the record of the version and, on request, with a signature; then every file with that list. A download
has its name only once all of it agrees.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

from pydantic import ValidationError

from compress.environment.cpu import describe_cpu
from compress.environment.libraries import unmet_minimum, versions
from compress.errors import ModelError, UsageError, format_bytes, nearest
from compress.publish.places import Absent, FolderPlace, Place, fetch, open_place, read
from compress.publish.records import Record, VariantRecord, find_version, is_address, names_in, split_address
from compress.publish.signatures import (
    MAX_SIGNATURE_BYTES,
    SIGNATURE_SUFFIX,
    PublicKey,
    check_signature,
    trusted_keys,
)
from compress.publish.verify import (
    DIGESTS_FILE,
    MAX_DIGESTS_BYTES,
    PULLED_FILE,
    Digests,
    parse_digests,
    read_digests,
    variant_folder,
    verify,
)
from compress.storage.atomic_write import new_folder, write_model
from compress.storage.file_digests import file_digest
from compress.storage.file_names import cache_folder
from compress.storage.stored_info import Info, up_to

if TYPE_CHECKING:
    from compress.runtime.predictor import Placement
    from compress.runtime.text_model import TextModel

ROOT, ALL = "root", "all"
"""What `--variant` calls the variant in a version's root, and everything that a version holds."""


@dataclass(frozen=True)
class Found:
    """What an address names: a folder of a place, with the record of its version where there is one."""

    address: str
    place: Place
    folder: str
    """Within the place; empty for the place itself."""
    record: Record | None = None

    @property
    def name(self) -> str:
        """`films@2`, or the address of what has no version."""
        return self.record.address if self.record else self.address

    def path(self, name: str) -> str:
        """Return where the place has a file of it."""
        return f"{self.folder}/{name}" if self.folder else name


class Pulled(Info):
    """The content of pulled.json: what a folder is a copy of."""

    schema_version: Annotated[int, up_to(1)] = 1
    source: str
    version: str | None = None
    """`films@2`; None where the source has no versions."""
    variant: str = ROOT


def find(address: str) -> Found | None:
    """Return what an address names; None where it is neither a version in a zoo nor a folder of a published model."""
    text = address.rstrip("/")
    parent, _, last = text.rpartition("/")
    if is_address(last):
        place = open_place(parent or ".")
        if record := find_version(place, *split_address(last)):
            return Found(text, place, record.folder, record)
    whole = open_place(text)
    is_remote = not isinstance(whole, FolderPlace)
    if is_remote or (Path(text).expanduser() / DIGESTS_FILE).is_file():
        return Found(text, whole, "")
    if parent and is_address(last) and not Path(text).expanduser().exists() and (names := names_in(open_place(parent))):
        raise ModelError(f"{parent} has no published model called '{last}'{nearest(last.partition('@')[0], names)}")
    return None


def pull(
    source: str | Path,
    to: Path | None = None,
    *,
    variant: str | None = None,
    update: bool = False,
    keys: Sequence[PublicKey] = (),
) -> Path:
    """Get a published model as the folder ``to``, verified, and return that.

    Args:
        source: `PLACE/name`, its newest version, or `PLACE/name@version`, where the place is a folder, an http(s)
            address, or anything that fsspec reaches; the folder of a published model; or a hub id
            (``owner/name[@version]``).
        to: the folder to create, by default the model's name. One that holds exactly this is replaced by an equal
            copy; any other that is not empty is refused, and so is a folder inside a published entry.
        variant: its folder's name below `variants/`, its variant's (`onnx-int8`), `root`, or `all` for everything;
            by default the winner that runs on this machine, the fastest of several.
        update: replace a folder that holds another version of this model, unless it was changed.
        keys: one of them must have signed it.
    """
    from compress.model_sources import HUB_ID

    text = str(source)
    found = find(text)
    to = to or Path(found.record.name if found and found.record else text.rstrip("/").rpartition("/")[2].split("@")[0])
    above = next((parent for parent in to.absolute().parents if (parent / DIGESTS_FILE).is_file()), None)
    if above is not None:  # a further folder would make that entry fail its verification
        raise UsageError(
            f"{to} is inside {above}, which is a published model.", hint="pull into a folder outside of it"
        )
    with new_folder(to) as work:
        if found is not None:
            pulled = _get(found, work, variant, keys)
        elif HUB_ID.match(text):
            pulled = _get_from_hub(text, work, variant, keys)
        else:
            raise UsageError(
                f"there is no published model at {text}.",
                hint="expected PLACE/name or PLACE/name@version, or a hub id such as owner/name; compress zoo ls PLACE",
            )
        write_model(work / PULLED_FILE, pulled)
        verify(work)
        _check_replaceable(to, work, pulled, update=update)
    return to


def opened(address: str | Path, warn: Callable[[str], None] | None = None) -> Path:
    """Return the folder of a model on this machine: a folder as it is, of a zoo the variant that fits.

    What a place behind fsspec or an http(s) address has is pulled once, into the cache.

    Args:
        address: a folder, `PLACE/name` or `PLACE/name@version`.
        warn: is told why a version that is named was withdrawn.
    """
    text, keys = str(address), trusted_keys()
    found = find(text)
    if found is None:
        return Path(text)
    if warn is not None and found.record and found.record.state == "withdrawn":
        warn(f"{found.name} was withdrawn: {found.record.why}")
    _, listed = _listed(found, keys)
    chosen = _chosen(found, listed, None)
    if isinstance(found.place, FolderPlace):
        folder = found.place.root / found.folder
        if chosen in (ROOT, ALL):
            return folder
        _check_file(folder / chosen / DIGESTS_FILE, f"{chosen}/{DIGESTS_FILE}", listed)
        return folder / chosen
    cached = cache_folder() / "zoo" / f"{listed.combined[:32]}-{chosen.replace('/', '-')}"
    if not (cached / DIGESTS_FILE).is_file():
        cached.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(cached) as work:
            _get(found, work, None, keys)
            write_model(work / PULLED_FILE, Pulled(source=found.place.address, version=found.name, variant=chosen))
            verify(work)
    return cached


def open_model(address: str | Path, placement: Placement | None = None) -> TextModel:
    """Open a model for texts: ``compress.open("zoo/films").predict(["a text"])``; loads torch only where needed.

    Args:
        address: a model folder, an exported one, or `PLACE/name` or `PLACE/name@version` of a zoo.
        placement: where it runs; None: one thread of the CPU, or CUDA where its runtime supports nothing else.
    """
    from compress.runtime import open

    return open(opened(address), placement)


def published_folder(address: str) -> Path:
    """Return the whole folder of what an address names, to be verified; of another machine what `opened` returns."""
    found = find(address)
    if found is None:
        return Path(address)
    return found.place.root / found.folder if isinstance(found.place, FolderPlace) else opened(address)


def check_folder_signature(folder: Path, keys: Sequence[PublicKey]) -> str:
    """Refuse a folder that none of the keys signed, as the version and variant that it says it is."""
    try:
        content = (folder / DIGESTS_FILE).read_bytes()
        path = folder / f"{DIGESTS_FILE}{SIGNATURE_SUFFIX}"
        signature = path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise ModelError(f"{folder} has no {DIGESTS_FILE} that could be signed: {error.strerror}.") from error
    found, pulled = find(str(folder)), read_pulled(folder)
    names = f"compress {found.record.address} ." if found and found.record else ""
    if pulled and pulled.version:
        names = f"compress {pulled.version} {'.' if pulled.variant in (ROOT, ALL) else pulled.variant}"
    return check_signature(content, signature, keys, str(folder), names)


def _get(found: Found, work: Path, variant: str | None, keys: Sequence[PublicKey]) -> Pulled:
    """Write the files of one variant, or of all, into an empty folder."""
    content, listed = _listed(found, keys)
    chosen = _chosen(found, listed, variant)
    below = "" if chosen in (ROOT, ALL) else f"{chosen}/"
    wanted = (each for each in listed.files if each.startswith(below))
    names = [each for each in wanted if below or chosen == ALL or not variant_folder(each)]
    needed, free = sum(listed.files[each].bytes for each in names), shutil.disk_usage(work).free
    if needed > free:
        sizes = f"{format_bytes(needed)}, and {format_bytes(free)} are free at {work.parent}"
        raise ModelError(f"{found.name} has {sizes}.", hint="free some disk space")
    for name in names:
        copy = work / name.removeprefix(below)
        fetch(found.place, found.path(name), listed.files[name].bytes, copy)
        _check_file(copy, name, listed)
    if not below:
        (work / DIGESTS_FILE).write_bytes(content)
    with_digests = {PurePosixPath(each).parent for each in (*names, DIGESTS_FILE) if each.endswith(DIGESTS_FILE)}
    for folder in with_digests:
        name = (folder / f"{DIGESTS_FILE}{SIGNATURE_SUFFIX}").as_posix()
        if name.startswith(below):
            with suppress(Absent):
                signature = read(found.place, found.path(name), MAX_SIGNATURE_BYTES)
                (work / name.removeprefix(below)).write_bytes(signature)
    return Pulled(source=found.place.address, version=found.record and found.record.address, variant=chosen)


def _check_file(path: Path, name: str, listed: Digests) -> None:
    """Refuse a file that is not the one that the list of digests has under this name."""
    stated = listed.files.get(name)
    if stated is None or not path.is_file() or file_digest(path) != stated.sha256:
        raise ModelError(f"{name} differs from what was published.")


def _listed(found: Found, keys: Sequence[PublicKey]) -> tuple[bytes, Digests]:
    """Return the list of digests of what was found, as a file and read, once record and signature agree with it."""
    where = f"{found.place.address}/{found.path(DIGESTS_FILE)}"
    try:
        content = read(found.place, found.path(DIGESTS_FILE), MAX_DIGESTS_BYTES)
    except Absent as error:
        raise ModelError(
            f"there is no published model at {found.address}: {error.message.rstrip('.')}.",
            hint="expected PLACE/name or PLACE/name@version; compress zoo ls PLACE",
        ) from error
    listed = parse_digests(content, where)
    digest = hashlib.sha256(content).hexdigest()
    if found.record and found.record.digest not in (digest, listed.combined):
        raise ModelError(f"{where} is not that of {found.name}: its digest is another one than the record's.")
    if keys:
        try:
            signature = read(found.place, found.path(DIGESTS_FILE + SIGNATURE_SUFFIX), MAX_SIGNATURE_BYTES)
        except Absent:
            signature = None
        check_signature(content, signature, keys, found.name, f"compress {found.name} ." if found.record else "")
    return content, listed


def _chosen(found: Found, listed: Digests, variant: str | None) -> str:
    """Return the folder of the variant to get, `root`, or `all`."""
    folders = dict.fromkeys(each for name in listed.files if (each := variant_folder(name)))
    complete = [each for each in folders if f"{each}/{DIGESTS_FILE}" in listed.files]  # not so in earlier versions
    record = found.record
    if variant is None:
        return _fitting(record.variants) if record and len(complete) == len(folders) else ALL
    names = {ROOT: ROOT, ALL: ALL, **{each.rpartition("/")[2]: each for each in complete}}
    for held in record.variants if record else ():
        if held.path == "." or held.path in complete:
            names.setdefault(held.variant, ROOT if held.path == "." else held.path)
    if variant not in names:
        raise UsageError(f"{found.name} has no variant '{variant}'{nearest(variant, names)}")
    return names[variant]


def _fitting(variants: Sequence[VariantRecord]) -> str:
    """Return the folder of the winner that this machine's CPU and libraries run, the fastest of several.

    Where no winner runs here it is the fastest other variant that does, and where none does `root`.
    """
    running = [each for each in variants if why_not_here(each) is None]
    order = sorted(running, key=lambda each: (not each.targets, each.p50_ms is None, each.p50_ms or 0.0, each.path))
    return order[0].path if order and order[0].path != "." else ROOT


def why_not_here(variant: VariantRecord) -> str | None:
    """Return why a variant does not run on this machine; None where nothing is known that prevents it."""
    have = describe_cpu().instructions
    if have is not None and (lacking := [each for each in variant.instructions if each not in have]):
        return f"this CPU has no {', '.join(lacking)}"
    if variant.libraries and not versions(variant.libraries):
        return f"{' or '.join(variant.libraries)} is not installed"
    return unmet_minimum(variant.libraries)


def _get_from_hub(source: str, work: Path, variant: str | None, keys: Sequence[PublicKey]) -> Pulled:
    """Download a repository, and write of it what was asked for."""
    from compress.publish.hub import download

    with tempfile.TemporaryDirectory(prefix=".pull-", dir=work.parent) as scratch:
        download(source, Path(scratch))
        pulled = _get(Found(source, FolderPlace(Path(scratch)), ""), work, variant, keys)
    return pulled.model_copy(update={"source": source})


def _check_replaceable(to: Path, work: Path, pulled: Pulled, *, update: bool) -> None:
    """Accept a folder that does not exist, is empty, holds the same undamaged, or another version to be replaced."""
    if not to.exists() or (to.is_dir() and not any(to.iterdir())):
        return
    if not (to.is_dir() and (to / DIGESTS_FILE).is_file()):
        raise UsageError(f"{to} exists and holds something else.", hint="name another folder, or remove that one")
    if read_digests(to) == read_digests(work):
        verify(to)
        return
    there = read_pulled(to)
    if there is None or there.version is None or pulled.version is None:
        raise UsageError(f"{to} exists and holds something else.", hint="name another folder, or remove that one")
    held, comes = (f"{each.version} ({each.variant})" for each in (there, pulled))
    if split_address(there.version)[0] != split_address(pulled.version)[0] or not update:
        raise UsageError(
            f"{to} holds {held}; what comes is {comes}.", hint="--update replaces it, or name another folder"
        )
    verify(to)


def read_pulled(folder: Path) -> Pulled | None:
    """Return what a folder is a copy of; None where that is not known."""
    try:
        return Pulled.model_validate_json((folder / PULLED_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
