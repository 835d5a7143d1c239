"""Writes files and folders so that a reader, and a power cut, finds the old content or the new, never part of it."""

import ctypes
import glob
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from stat import S_IMODE
from threading import get_ident

from pydantic import BaseModel

from compress.errors import CompressError, UsageError

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Constants of renameat2(2): paths are relative to the working directory; both paths exist and are swapped."""

NUMBERS = re.compile(r"\[\n\s+([^\[\]{}\"]*?)\n\s*\]")
"""A list of numbers in indented JSON."""


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file under a temporary name, flush it to disk and rename it to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}")
    try:
        with temporary.open("wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_model(path: Path, content: BaseModel) -> None:
    """Write ``content`` as indented JSON, each list of numbers on one line."""
    text = NUMBERS.sub(lambda match: f"[{' '.join(match[1].split())}]", content.model_dump_json(indent=2))
    atomic_write(path, text + "\n")


def why_unwritable(folder: Path) -> str | None:
    """Return why a folder cannot be created or written into, as far as that can be told before it is tried."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        return f"{existing} is a file, expected a folder"
    return None if os.access(existing, os.W_OK) else f"{existing} is not writable"


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield an empty hidden folder that replaces ``target`` when the block ends, unless it raises.

    Hidden folders of processes that were killed before that are removed too; those of other machines and containers,
    whose processes are not visible here, once nothing was created in them for a day.
    """
    target = target.absolute()
    with suppress(OSError):  # a working directory that is gone is in no folder
        if Path.cwd().is_relative_to(target.resolve()):
            raise UsageError(f"{target} is the folder you are in, which cannot be replaced.", hint="name another one")
    work = _hidden(target, "new")
    try:
        work.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{target} cannot be created: {error.strerror}.") from error
    try:
        yield work
        atomic_replace_folder(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for path in target.parent.glob(f".{glob.escape(target.name)}.*-*"):
        state, process, *rest = path.name.removeprefix(f".{target.name}.").split("-")
        if state in ("new", "old") and process.isdecimal() and not _is_in_use(path, int(process), rest[-1:]):
            shutil.rmtree(path, ignore_errors=True)


def _hidden(target: Path, state: str) -> Path:
    """Return the hidden folder beside ``target`` that this process writes into next."""
    return target.with_name(f".{target.name}.{state}-{os.getpid()}-{time.monotonic_ns()}-{_processes()}")


@cache
def _processes() -> str:
    """Return a name of what numbers processes: this machine, or a container on it."""
    with suppress(OSError):
        return sha256(f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}".encode()).hexdigest()[:12]
    return sha256(socket.gethostname().encode()).hexdigest()[:12]


CLOCK_TOLERANCE = 5.0
"""Seconds between the clocks of files and of processes."""
ABANDONED = 24 * 3600.0
"""Seconds after which a folder of another machine is one that its process left."""


def _is_in_use(path: Path, process: int, numbered_by: Sequence[str]) -> bool:
    """Whether a process of this number runs that did not begin after the folder: in containers numbers repeat."""
    import psutil

    if [*numbered_by] != [_processes()]:
        with suppress(OSError):
            return time.time() - path.stat().st_mtime < ABANDONED
        return False
    try:
        return psutil.Process(process).create_time() <= path.stat().st_mtime + CLOCK_TOLERANCE
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False
    except psutil.AccessDenied:
        return True


def copy_content(source: Path, target: Path, copy_file: Callable[[Path, Path], object] = shutil.copyfile) -> None:
    """Copy what a folder holds into ``target``, which is created if needed; everything gets the umask's modes.

    `shutil.copytree` would copy modes too, and scratch folders are closed to other users.
    """
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.is_dir():
            copy_content(path, target / path.name, copy_file)
        else:
            copy_file(path, target / path.name)


def apply_umask(folder: Path, paths: Iterable[Path]) -> None:
    """Give files and folders within ``folder`` the modes of new ones, unless theirs are wider.

    Some libraries (tempfile, safetensors) create what only its owner can read.
    """
    probe = folder / f".umask-{os.getpid()}-{get_ident()}"
    probe.mkdir()  # os.umask cannot be read without changing it for all threads
    allowed = S_IMODE(probe.stat().st_mode)
    probe.rmdir()
    for path in paths:
        mode = S_IMODE(path.stat().st_mode)
        wanted = mode | (allowed & (0o777 if path.is_dir() else 0o666))
        if wanted != mode:
            with suppress(PermissionError):  # of another user, who shares a file with this folder
                path.chmod(wanted)


def atomic_copy_folder(source: Path, target: Path) -> None:
    """Copy a folder to ``target``, replacing what is there."""
    try:
        with new_folder(target) as work:
            copy_content(source, work)
    except OSError as error:
        raise CompressError(f"{source} cannot be copied to {target}: {error}") from error


def atomic_replace_folder(work: Path, target: Path) -> None:
    """Flush the complete folder ``work`` to disk and rename it to ``target``, whose old content is removed after."""
    paths = [path for path in (*work.rglob("*"), work) if not path.is_symlink()]
    apply_umask(work, paths)
    for path in paths:
        sync(path)
    if target.exists() and _exchange(work, target):
        old = work
    else:
        old = _hidden(target, "old")
        if target.exists():
            target.rename(old)
        work.rename(target)
    sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two paths in one step, so that both exist at any time; returns False where the system cannot (not Linux)."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if renameat2 is None:
        return False
    return bool(renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0)


def sync(path: Path) -> None:
    """Flush one file or folder to disk; systems that cannot open folders do without."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
