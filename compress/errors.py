"""Every failure a user can meet: one tree, each with a message, a hint and an exit code.

A message says what went wrong, what was there, what was expected and the nearest valid name; the hint says what to
type. Only ``cli.py`` turns these into an exit.
"""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


class CompressError(Exception):
    """A failure that is told in one message, without a traceback."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def full_message(self) -> str:
        """The message with its hint, where both must stand in one line."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(CompressError):
    """A command or option that cannot be meant as it stands."""

    exit_code = 2


class DataError(CompressError):
    """Data that cannot be read or does not fit the task; the message names file and row."""


class ModelError(CompressError):
    """A model that cannot be found, read, built or changed as asked."""


class DeviceUnavailable(ModelError):
    """A device that this machine, or this build of a runtime, does not have: what needs it was not measured."""


class OutOfMemory(ModelError):
    """A batch, or a model, that does not fit in the memory there is."""


class MissingExtra(CompressError):
    """An optional library is not installed; the message names the extra that brings it."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(
            f"{library} is needed here and is not installed.",
            hint=f"pip install 'compress-encoders[{extra}]'",
        )


class GateMissed(CompressError):
    """The run is complete, but no variant passed the recipe's gate."""

    exit_code = 3


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where a disk, a user's share of it or a file may grow no further."""


def unexpected(error: Exception) -> CompressError:
    """What nobody caught, as one message; a full disk is told as such, whichever library ran into it."""
    told = f"{type(error).__name__}: {error}"
    if any(os.strerror(number) in told for number in FULL):
        return CompressError(
            f"a file could not be written: {error}",
            hint="make room; the same command again goes on from what stands, a training from its last checkpoint",
        )
    return CompressError(f"unexpected failure: {told}", hint="COMPRESS_DEBUG=1 shows where; please report it")


@dataclass(frozen=True)
class Problem:
    """One fault in a recipe: where (a key path), what, and what would be right."""

    path: tuple[str | int, ...]
    message: str
    line: int | None = None

    def __str__(self) -> str:
        """Read as ``line 4, distill.soft_labl: unknown key; did you mean soft_label?``."""
        key = ".".join(str(part) for part in self.path) or "recipe"
        return f"line {self.line}, {key}: {self.message}" if self.line else f"{key}: {self.message}"


class RecipeError(UsageError):
    """All faults of a recipe at once."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        count = len(self.problems)
        head = f"{source}: {count} problem{'s' if count != 1 else ''}"
        super().__init__("\n  ".join([head, *map(str, self.problems)]))


def first_error(error: Any) -> str:
    """What a pydantic error says of the first fault, without its library's own words around it."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg'].removeprefix('Value error, ')}"


def pluralize(count: int, one: str) -> str:
    """`1 choice`, `1,204 choices`."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def format_bytes(count: float) -> str:
    """Bytes of memory or of a disk: `2.0 GiB`, `15 bytes`."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count:.0f} bytes"


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known one, and all of them while they are few."""
    names = sorted(map(str, known))
    close = difflib.get_close_matches(name, names, n=1)
    guess = f"; did you mean {close[0]}?" if close else ""
    listing = f" (known: {', '.join(names)})" if 0 < len(names) <= 20 else ""
    return guess + listing
