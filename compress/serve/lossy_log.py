"""A log that may be lost, as requests may not: whoever reads it may be gone, or the disk full."""

from collections.abc import Callable
from contextlib import suppress


def log(write: Callable[[str], None], text: str) -> None:
    """Write a line where that is possible."""
    with suppress(OSError, ValueError):
        write(text)
