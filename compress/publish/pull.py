"""Gets a published model: from a zoo in a folder, behind fsspec or at an http(s) address, or from the hub.

Of the variants of a version it gets the one that fits this machine. A download has its name only once all of it was
compared with what was published.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from compress.errors import ModelError, UsageError, format_bytes
from compress.publish.places import Absent, FolderPlace, fetch, read
from compress.publish.published_model import (
    ALL,
    ROOT,
    PublishedModel,
    Pulled,
    check_file,
    checked_digests,
    choose_variant,
    find,
    read_pulled,
)
from compress.publish.records import split_address
from compress.publish.signatures import (
    MAX_SIGNATURE_BYTES,
    SIGNATURE_SUFFIX,
    PublicKey,
    check_signature,
    trusted_keys,
)
from compress.publish.verify import (
    DIGESTS_FILE,
    PULLED_FILE,
    additions,
    find_damage,
    read_digests,
    variant_folder,
    verify,
)
from compress.storage.atomic_write import new_folder, write_model
from compress.storage.file_names import cache_folder, expanded_user

if TYPE_CHECKING:
    from compress.runtime.predictor import Placement
    from compress.runtime.text_model import TextModel


def pull(
    source: str | Path,
    to: Path | None = None,
    *,
    variant: str | None = None,
    update: bool = False,
    keys: Sequence[PublicKey] = (),
    warn: Callable[[str], None] | None = None,
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
        warn: is called with the reason where a version that is named was withdrawn.
    """
    from compress.model_sources import HUB_ID

    text = str(source)
    model = find(text)
    _warn_of_withdrawn(model, warn)
    to = to or Path(model.record.name if model and model.record else text.rstrip("/").rpartition("/")[2].split("@")[0])
    above = next((parent for parent in to.absolute().parents if (parent / DIGESTS_FILE).is_file()), None)
    if above is not None:  # a further folder would make that entry fail its verification
        raise UsageError(
            f"{to} is inside {above}, which is a published model.", hint="pull into a folder outside of it"
        )
    with new_folder(to) as work:
        if model is not None:
            pulled = _get(model, work, variant, keys)
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
        warn: is called with the reason where a version that is named was withdrawn.
    """
    text, keys = str(address), trusted_keys()
    model = find(text)
    if model is None:
        return Path(text)
    _warn_of_withdrawn(model, warn)
    _, listed = checked_digests(model, keys)
    chosen = choose_variant(model, listed, None)
    if isinstance(model.place, FolderPlace):
        folder = model.place.root / model.folder
        if chosen not in (ROOT, ALL):
            check_file(folder / chosen / DIGESTS_FILE, f"{chosen}/{DIGESTS_FILE}", listed)
            folder /= chosen
        if keys:
            _check_as_signed(folder)
        return folder
    cached = cache_folder() / "zoo" / f"{listed.combined[:32]}-{chosen.replace('/', '-')}"
    if not (cached / DIGESTS_FILE).is_file():
        cached.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(cached) as work:
            _get(model, work, None, keys)
            version = model.record and model.record.address
            write_model(work / PULLED_FILE, Pulled(source=model.place.address, version=version, variant=chosen))
            verify(work)
    return cached


def checked_model(name: str, warn: Callable[[str], None] | None = None) -> str:
    """Return what names a model on this machine, once it is as trusted keys want it: cards and hub ids as they are."""
    path = expanded_user(name)
    within = next((each for each in path.parents if (each / DIGESTS_FILE).is_file()), None) if path.is_file() else None
    folder = opened(name if within is None else within, warn)
    if not path.exists():
        return str(folder)
    if trusted_keys():
        _check_as_signed(within or path)  # all of it: a variant may fit better than what is named here
    return name


def _check_as_signed(folder: Path) -> None:
    is_published = (folder / DIGESTS_FILE).is_file()
    if is_published and (damage := find_damage(folder) or next(additions(folder), None)):
        raise ModelError(f"{folder} is not as it was signed: {damage}.", hint=f"compress verify {folder}")


def _warn_of_withdrawn(model: PublishedModel | None, warn: Callable[[str], None] | None) -> None:
    """Say why a version that was named was withdrawn."""
    if warn is not None and model and model.record and model.record.state == "withdrawn":
        warn(f"{model.name} was withdrawn: {model.record.why}")


def open_model(address: str | Path, placement: Placement | None = None) -> TextModel:
    """Open a model for texts: ``compress.open("zoo/films").predict(["a text"])``; loads torch only where needed.

    Args:
        address: a model folder, an exported one, or `PLACE/name` or `PLACE/name@version` of a zoo.
        placement: where it runs; None: one thread of the CPU, or CUDA where its runtime supports nothing else.
    """
    from compress.runtime import open

    return open(opened(address), placement)


def published_folder(address: str, warn: Callable[[str], None] | None = None) -> Path:
    """Return the whole folder of what an address names, to be verified; of another machine what `opened` returns."""
    model = find(address)
    _warn_of_withdrawn(model, warn)
    if model is None:
        return Path(address)
    return model.place.root / model.folder if isinstance(model.place, FolderPlace) else opened(address)


def check_folder_signature(folder: Path, keys: Sequence[PublicKey]) -> str:
    """Refuse a folder that none of the keys signed, as the version and variant that it says it is."""
    try:
        content = (folder / DIGESTS_FILE).read_bytes()
        path = folder / f"{DIGESTS_FILE}{SIGNATURE_SUFFIX}"
        signature = path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise ModelError(f"{folder} has no {DIGESTS_FILE} that could be signed: {error.strerror}.") from error
    model = find(str(folder))
    return check_signature(content, signature, keys, str(folder), model.signed_as if model else "")


def _get(model: PublishedModel, work: Path, variant: str | None, keys: Sequence[PublicKey]) -> Pulled:
    """Write the files of one variant, or of all, into an empty folder."""
    content, listed = checked_digests(model, keys)
    chosen = choose_variant(model, listed, variant)
    below = "" if chosen in (ROOT, ALL) else f"{chosen}/"
    wanted = (each for each in listed.files if each.startswith(below))
    names = [each for each in wanted if below or chosen == ALL or not variant_folder(each)]
    needed, free = sum(listed.files[each].bytes for each in names), shutil.disk_usage(work).free
    if needed > free:
        sizes = f"{format_bytes(needed)}, and {format_bytes(free)} are free at {work.parent}"
        raise ModelError(f"{model.name} has {sizes}.", hint="free some disk space")
    for name in names:
        copy = work / name.removeprefix(below)
        fetch(model.place, model.path(name), listed.files[name].bytes, copy)
        check_file(copy, name, listed)
    if not below:
        (work / DIGESTS_FILE).write_bytes(content)
    with_digests = {PurePosixPath(each).parent for each in (*names, DIGESTS_FILE) if each.endswith(DIGESTS_FILE)}
    for folder in with_digests:
        name = (folder / f"{DIGESTS_FILE}{SIGNATURE_SUFFIX}").as_posix()
        if name.startswith(below):
            with suppress(Absent):
                signature = read(model.place, model.path(name), MAX_SIGNATURE_BYTES)
                (work / name.removeprefix(below)).write_bytes(signature)
    return Pulled(source=model.place.address, version=model.record and model.record.address, variant=chosen)


def _get_from_hub(source: str, work: Path, variant: str | None, keys: Sequence[PublicKey]) -> Pulled:
    """Download a repository, and write of it what was asked for."""
    from compress.publish.hub import download

    with tempfile.TemporaryDirectory(prefix=".pull-", dir=work.parent) as scratch:
        download(source, Path(scratch))
        pulled = _get(PublishedModel(source, FolderPlace(Path(scratch)), ""), work, variant, keys)
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
