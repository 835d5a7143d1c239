"""Memory that a training frees and asks for again a moment later stays with the process meanwhile."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4
"""The knobs of glibc's mallopt."""

KEPT = {TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 2**26, MMAP_MAX: 0}
USUAL = {TRIM_THRESHOLD: 2**26, TOP_PAD: 0, MMAP_THRESHOLD: 2**25, MMAP_MAX: 65536}
"""Where glibc's own settings end up in a process that frees large blocks: once told, it moves them no more."""


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Within the block freed memory is not handed back to the system; afterwards all of it is.

    A training step asks for the same large blocks every time. The usual settings return each to the system when it is
    freed, which fills it with zeros again, page by page, before the next step may write to it: on a virtual machine
    that took as long as a fifth of the step. Where the C library is another one, nothing changes.
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    library = ctypes.CDLL(None)
    _set(library, KEPT)
    try:
        yield
    finally:
        _set(library, USUAL)
        library.malloc_trim(0)


def _set(library: ctypes.CDLL, knobs: dict[int, int]) -> None:
    for knob, value in knobs.items():
        library.mallopt(knob, value)
