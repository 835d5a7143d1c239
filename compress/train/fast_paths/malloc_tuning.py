"""glibc malloc settings that keep freed memory in the process during training."""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4
"""Parameters of glibc's mallopt."""

KEEP_FREED = {TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 2**26, MMAP_MAX: 0}
DEFAULTS = {TRIM_THRESHOLD: 2**26, TOP_PAD: 0, MMAP_THRESHOLD: 2**25, MMAP_MAX: 65536}
"""Where glibc's dynamic settings end up in a process that frees large blocks; once set, they are no longer dynamic."""


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Keep freed memory in the process within the block; return it to the system afterwards.

    A training step allocates the same large blocks every time. By default each is returned to the system when it is
    freed, and the system zeroes it again, page by page, before the next step can use it: on a virtual machine this took
    a fifth of the step. With another C library nothing changes.
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    library = ctypes.CDLL(None)
    _set(library, KEEP_FREED)
    try:
        yield
    finally:
        _set(library, DEFAULTS)
        library.malloc_trim(0)


def _set(library: ctypes.CDLL, parameters: dict[int, int]) -> None:
    for parameter, value in parameters.items():
        library.mallopt(parameter, value)
