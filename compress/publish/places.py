"""Where zoos are: a folder, whatever fsspec reaches (s3://, gs://, az:// …), or an http(s) address, which is read only.

All that a zoo needs of a place is here: the files in it, their content up to a limit, a file that is created only where
there is none, one that is replaced at once, and a folder that is put there.
"""

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from compress.environment import require
from compress.errors import DISK_FULL, FREE_SPACE, CompressError, ModelError, UsageError
from compress.publish.signatures import SIGNATURE_SUFFIX
from compress.storage.atomic_write import atomic_write, copy_content, new_folder, sync
from compress.storage.file_digests import digests
from compress.storage.file_names import expanded_user

Result = TypeVar("Result")

CHUNK = 1 << 20
"""Bytes that are read at a time."""
TIMEOUT = 30.0
"""Seconds without a byte after which a request fails."""
LEAST_RATE = 10_000
"""Bytes a second that a file arrives with at least, after `TIMEOUT`: a slower place counts as gone."""
TRIES, PAUSE = 3, 0.5
"""How often a request is sent that the server could not answer, and the seconds before the second time."""
PRECONDITION_FAILED = re.compile(r"PreconditionFailed|\b412\b")
"""How fsspec's libraries name a conditional write that was refused."""
BUSY = (408, 429, 500, 502, 503, 504)
"""Answers after which the same request may succeed a moment later."""


class Absent(ModelError):
    """A file that a place does not have."""


class Busy(ModelError):
    """A request that the place could not answer now, or not to its end."""


class Place:
    """A place of files, named by paths relative to it. By itself it can be neither listed nor written."""

    def __init__(self, address: str) -> None:
        self.address = address

    def files(self) -> dict[str, int] | None:
        """Return the size of every file at the top; None where a place cannot be listed."""
        return None

    def stream(self, path: str, limit: int) -> Iterator[bytes]:
        """Yield the content of a file in pieces; raise Absent without it, ModelError where it has more bytes."""
        raise NotImplementedError

    def create(self, path: str, content: bytes) -> bool:
        """Write a file where there is none, in one step; return False, and write nothing, where there is one."""
        raise self.read_only()

    def write(self, path: str, content: bytes) -> None:
        """Write a file, in one step."""
        raise self.read_only()

    def upload(self, folder: Path, path: str) -> None:
        """Put the files of a folder below ``path``."""
        raise self.read_only()

    def read_only(self) -> UsageError:
        """Return the error of writing into a place that is only read."""
        return UsageError(f"{self.address} is read only: publish into a folder, s3:// and the like, or the hub.")


def read(place: Place, path: str, limit: int) -> bytes:
    """Return the content of a file of at most ``limit`` bytes."""
    return _patiently(lambda: b"".join(place.stream(path, limit)))


def fetch(place: Place, path: str, limit: int, to: Path) -> None:
    """Write a file of at most ``limit`` bytes to ``to``."""

    def write() -> None:
        with to.open("wb") as stream:
            stream.writelines(place.stream(path, limit))

    to.parent.mkdir(parents=True, exist_ok=True)
    _patiently(write)


def _patiently(request: Callable[[], Result]) -> Result:
    """Send a request again, from its start, where the place was busy."""
    for attempt in range(TRIES - 1):
        try:
            return request()
        except Busy:
            time.sleep(PAUSE * 2**attempt)
    return request()


def open_place(address: str) -> Place:
    """Return the place at an address: a path, or a URL whose scheme fsspec knows."""
    scheme = urlsplit(address).scheme if "://" in address else ""
    if scheme in ("http", "https"):
        return WebPlace(address.rstrip("/"))
    if scheme and scheme != "file":
        return CloudPlace(address.rstrip("/"))
    return FolderPlace(expanded_user(address.removeprefix("file://") or "."))


def check_writable(place: Place) -> None:
    """Refuse a place that nothing can be published into; one that is not reached yet is not asked."""
    if isinstance(place, WebPlace):
        raise place.read_only()


class FolderPlace(Place):
    """A folder of this machine, or one that it mounts."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.root = root

    def files(self) -> dict[str, int]:
        """Return the size of every file at the top."""
        with self._failures():
            entries = os.scandir(self.root) if self.root.is_dir() else ()
            files = [each for each in entries if not each.name.startswith(".") and each.is_file(follow_symlinks=False)]
            return {each.name: each.stat().st_size for each in files}

    def stream(self, path: str, limit: int) -> Iterator[bytes]:
        """Yield the content of a file in pieces."""
        with self._failures():
            parts = Path(path).parts
            if any(self.root.joinpath(*parts[:count]).is_symlink() for count in range(1, len(parts) + 1)):
                raise ModelError(f"{self.root / path} is a symbolic link; expected a file of its own.")
            try:
                stream = (self.root / path).open("rb")
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
                raise Absent(f"there is no {self.root / path}.") from error
            with stream:
                yield from _pieces(stream, f"{self.root / path}", limit)

    def create(self, path: str, content: bytes) -> bool:
        """Write a file where there is none: it is linked to its name when it is complete."""
        with self._failures():
            self.root.mkdir(parents=True, exist_ok=True)
            complete = self.root / f".{path}.{os.getpid()}-{time.monotonic_ns()}"
            try:
                atomic_write(complete, content)
                os.link(complete, self.root / path)
                sync(self.root)
            except FileExistsError:
                return False
            finally:
                complete.unlink(missing_ok=True)
        return True

    def write(self, path: str, content: bytes) -> None:
        """Write a file, in one step."""
        with self._failures():
            atomic_write(self.root / path, content)

    def upload(self, folder: Path, path: str) -> None:
        """Put the files of a folder below ``path``, all at once; what others put there is left as it is.

        The same files may be there, of a publisher that was killed, with signatures of another time.
        """
        target = self.root / path
        with self._failures():
            if target.exists() and _unsigned(target) != _unsigned(folder):
                raise UsageError(
                    f"{target} exists and was not published by compress; it is left as it is.",
                    hint="remove it, or choose another --version",
                )
            with new_folder(target) as work:
                copy_content(folder, work)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except CompressError:
            raise
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(f"{self.root} is no folder, which a zoo needs to be.") from error
        except PermissionError as error:
            raise UsageError(f"{self.root} cannot be used as a zoo: {error.strerror} ({error.filename}).") from error
        except OSError as error:
            hint = FREE_SPACE if error.errno in DISK_FULL else None
            raise ModelError(f"{self.root} cannot be written: {error.strerror}.", hint) from error


class WebPlace(Place):
    """An http(s) address, which is read only and cannot be listed."""

    def stream(self, path: str, limit: int) -> Iterator[bytes]:
        """Yield the content of a file in pieces."""
        import urllib.error
        import urllib.request
        from http.client import HTTPException

        address, size = f"{self.address}/{quote(path)}", 0
        try:
            with urllib.request.urlopen(address, timeout=TIMEOUT) as response:
                for piece in _pieces(response, address, limit):
                    size += len(piece)
                    yield piece
                stated = response.headers.get("Content-Length", "")
                if stated.isdecimal() and size < int(stated[:20]):
                    raise HTTPException(f"it ended after {size:,} of {stated} bytes")
        except (OSError, HTTPException) as error:
            code = None
            if isinstance(error, urllib.error.HTTPError):
                code = error.code
                error.close()
            kind = Absent if code in (404, 410) else Busy if code in (None, *BUSY) else ModelError
            raise kind(f"{address} cannot be downloaded: {error}.") from error


class CloudPlace(Place):
    """A place behind fsspec; its own library (s3fs, gcsfs, adlfs) is installed by the user."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        fsspec = require("fsspec", "zoo")
        try:
            self._system, self._root = fsspec.core.url_to_fs(address, use_listings_cache=False)
        except ImportError as error:
            raise UsageError(
                f"{address} cannot be reached: {error}.", hint="install the package that it names"
            ) from error
        except (ValueError, OSError) as error:
            raise UsageError(f"{address} is no place of a zoo: {error}.") from error

    def files(self) -> dict[str, int]:
        """Return the size of every file at the top."""
        with self._failures(self.address), suppress(FileNotFoundError):
            found = self._system.ls(self._root, detail=True, refresh=True)
            return {each["name"].rpartition("/")[2]: int(each["size"]) for each in found if each["type"] == "file"}
        return {}

    def stream(self, path: str, limit: int) -> Iterator[bytes]:
        """Yield the content of a file in pieces."""
        where = f"{self.address}/{path}"
        with self._failures(where):
            try:
                stream = self._system.open(f"{self._root}/{path}", "rb", block_size=CHUNK)
            except FileNotFoundError as error:
                raise Absent(f"there is no {where}.") from error
            with stream:
                yield from _pieces(stream, where, limit)

    def create(self, path: str, content: bytes) -> bool:
        """Write a file where there is none: by a conditional write where the place has one."""
        with self._failures(f"{self.address}/{path}"):
            try:
                self._system.pipe_file(f"{self._root}/{path}", content, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                if PRECONDITION_FAILED.search(repr(error).replace(f"{self._root}/{path}", "")):
                    return False
                raise
            except (NotImplementedError, TypeError):  # a place without conditional writes
                if self._system.exists(f"{self._root}/{path}"):
                    return False
                self._system.pipe_file(f"{self._root}/{path}", content)
        return True

    def write(self, path: str, content: bytes) -> None:
        """Write a file, in one step."""
        with self._failures(f"{self.address}/{path}"):
            self._system.pipe_file(f"{self._root}/{path}", content)

    def upload(self, folder: Path, path: str) -> None:
        """Put the files of a folder below ``path``."""
        for file in sorted(each for each in folder.rglob("*") if each.is_file()):
            target = f"{path}/{file.relative_to(folder).as_posix()}"
            with self._failures(f"{self.address}/{target}"):
                self._system.put_file(str(file), f"{self._root}/{target}")

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        """Turn what fsspec's libraries raise, each its own, into one message."""
        try:
            yield
        except CompressError:
            raise
        except PermissionError as error:
            raise ModelError(f"{what}: no permission ({error}).", hint="its own credentials are used") from error
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(".")
            changed_meanwhile = isinstance(error, OSError) and error.errno == errno.EBUSY
            kind = Busy if changed_meanwhile else ModelError
            raise kind(f"{what} cannot be reached: {reason}.") from error


def _unsigned(folder: Path) -> dict[str, str]:
    return {name: digest for name, digest in digests(folder).items() if not name.endswith(SIGNATURE_SUFFIX)}


def _pieces(stream: Any, name: str, limit: int) -> Iterator[bytes]:
    """Yield the bytes of a stream; more than ``limit`` is an error, and so is a place that has all but stopped."""
    size, start = 0, time.monotonic()
    read_some = getattr(stream, "read1", stream.read)  # what has arrived, where a stream can say
    while piece := read_some(CHUNK):
        size += len(piece)
        if size > limit:
            raise ModelError(f"{name} is larger than the {limit:,} bytes that were published.")
        if time.monotonic() - start > TIMEOUT + size / LEAST_RATE:
            raise ModelError(f"{name} arrives at less than {LEAST_RATE:,} bytes a second; the download is given up.")
        yield piece
