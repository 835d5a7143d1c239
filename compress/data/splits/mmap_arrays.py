"""Numbers in a file that are read through a map, so that they take no more memory than what is looked at."""

from __future__ import annotations

import mmap
from pathlib import Path


def map_file(path: Path) -> mmap.mmap | None:
    """A file to read from; None where it is empty, which no map can be."""
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else None


def release_pages(pages: mmap.mmap | None) -> None:
    """Let go of what was read: it stays in the system's memory as long as there is room, and not in this process's.

    Without this, a process that reads all of a large file now and then seems to need that much memory.
    """
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
