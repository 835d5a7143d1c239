"""Memory-mapped files, which take no more memory than the part that is read."""

from __future__ import annotations

import mmap
from pathlib import Path


def map_file(path: Path) -> mmap.mmap | None:
    """Map a file for reading; None if it is empty, which cannot be mapped."""
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else None


def release_pages(pages: mmap.mmap | None) -> None:
    """Release the pages that were read: they stay in the system's page cache, but not in this process's memory.

    Without this, a process that reads all of a large file now and then seems to need that much memory.
    """
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
