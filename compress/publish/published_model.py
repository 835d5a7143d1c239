"""What an address names: a version in a zoo or the folder of a published model, its digests checked, its variants.

Nothing is trusted before it was compared: the list of digests with the record of the version and, on request, with a
signature; then every file with that list.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ValidationError

from compress.environment.cpu import describe_cpu
from compress.environment.libraries import unmet_minimum, versions
from compress.errors import ModelError, UsageError, nearest
from compress.publish.places import Absent, FolderPlace, Place, open_place, read
from compress.publish.records import Record, VariantRecord, is_address, names_in, split_address
from compress.publish.signatures import MAX_SIGNATURE_BYTES, SIGNATURE_SUFFIX, PublicKey, check_signature
from compress.publish.verify import (
    DIGESTS_FILE,
    MAX_DIGESTS_BYTES,
    PULLED_FILE,
    Digests,
    parse_digests,
    variant_folder,
)
from compress.publish.zoo_index import find_version
from compress.storage.file_digests import file_digest
from compress.storage.file_names import expanded_user
from compress.storage.stored_info import Info, up_to

ROOT, ALL = "root", "all"
"""What `--variant` calls the variant in a version's root, and everything that a version holds."""


class Pulled(Info):
    """The content of pulled.json: what a folder is a copy of."""

    schema_version: Annotated[int, up_to(1)] = 1
    source: str
    version: str | None = None
    """`films@2`; None where the source has no versions."""
    variant: str = ROOT


def read_pulled(folder: Path) -> Pulled | None:
    """Return what a folder is a copy of; None where that is not known."""
    try:
        return Pulled.model_validate_json((folder / PULLED_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


@dataclass(frozen=True)
class PublishedModel:
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

    @property
    def signed_as(self) -> str:
        """What its signature has to be of: `compress films@2 .`; empty for a folder that has no version.

        The version that its record has, else the one that its address names: without records one model is no other. A
        folder of any other name is what it says that it is a copy of.
        """
        if self.record:
            return f"compress {self.record.address} ."
        last = self.address.rpartition("/")[2]
        pulled = read_pulled(self.place.root / self.folder) if isinstance(self.place, FolderPlace) else None
        version = last if "@" in last and is_address(last) else pulled and pulled.version
        if not version:
            return ""
        is_variant = pulled and pulled.version == version and pulled.variant not in (ROOT, ALL)
        return f"compress {version} {pulled.variant if pulled and is_variant else '.'}"

    def path(self, name: str) -> str:
        """Return where the place has a file of it."""
        return f"{self.folder}/{name}" if self.folder else name


def find(address: str) -> PublishedModel | None:
    """Return what an address names; None where it is neither a version in a zoo nor a folder of a published model."""
    text = address.rstrip("/")
    parent, _, last = text.rpartition("/")
    if is_address(last):
        place = open_place(parent or ".")
        if record := find_version(place, *split_address(last)):
            return PublishedModel(text, place, record.folder, record)
    whole = open_place(text)
    is_remote = not isinstance(whole, FolderPlace)
    if is_remote or (expanded_user(text) / DIGESTS_FILE).is_file():
        return PublishedModel(text, whole, "")
    if parent and is_address(last) and not expanded_user(text).exists() and (names := names_in(open_place(parent))):
        raise ModelError(f"{parent} has no published model called '{last}'{nearest(last.partition('@')[0], names)}")
    return None


def check_file(path: Path, name: str, listed: Digests) -> None:
    """Refuse a file that is not the one that the list of digests has under this name."""
    stated = listed.files.get(name)
    if stated is None or not path.is_file() or file_digest(path) != stated.sha256:
        raise ModelError(f"{name} differs from what was published.")


def checked_digests(model: PublishedModel, keys: Sequence[PublicKey]) -> tuple[bytes, Digests]:
    """Return the list of digests of a published model, as a file and read, once record and signature agree with it."""
    where = f"{model.place.address}/{model.path(DIGESTS_FILE)}"
    if keys and not (model.signed_as or isinstance(model.place, FolderPlace)):
        reason = "no record there names its version, so its signature may be that of another model"
        raise ModelError(f"{model.address}: {reason}.", hint="name the version: PLACE/name@version")
    try:
        content = read(model.place, model.path(DIGESTS_FILE), MAX_DIGESTS_BYTES)
    except Absent as error:
        raise ModelError(
            f"there is no published model at {model.address}: {error.message.rstrip('.')}.",
            hint="expected PLACE/name or PLACE/name@version; compress zoo ls PLACE",
        ) from error
    listed = parse_digests(content, where)
    digest = hashlib.sha256(content).hexdigest()
    if model.record and model.record.digest not in (digest, listed.combined):
        raise ModelError(f"{where} is not that of {model.name}: its digest is another one than the record's.")
    if keys:
        try:
            signature = read(model.place, model.path(DIGESTS_FILE + SIGNATURE_SUFFIX), MAX_SIGNATURE_BYTES)
        except Absent:
            signature = None
        check_signature(content, signature, keys, model.name, model.signed_as)
    return content, listed


def choose_variant(model: PublishedModel, listed: Digests, variant: str | None) -> str:
    """Return the folder of the variant to get, `root`, or `all`."""
    folders = dict.fromkeys(each for name in listed.files if (each := variant_folder(name)))
    complete = [each for each in folders if f"{each}/{DIGESTS_FILE}" in listed.files]  # not so in earlier versions
    record = model.record
    if variant is None:
        return _fitting(record.variants) if record and len(complete) == len(folders) else ALL
    names = {ROOT: ROOT, ALL: ALL, **{each.rpartition("/")[2]: each for each in complete}}
    for held in record.variants if record else ():
        if held.path == "." or held.path in complete:
            names.setdefault(held.variant, ROOT if held.path == "." else held.path)
    if variant not in names:
        raise UsageError(f"{model.name} has no variant '{variant}'{nearest(variant, names)}")
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
