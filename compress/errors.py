"""All errors that users see: one tree, each with a message, a hint and an exit code.

A message says what went wrong, what was given, what was expected and the nearest valid name; the hint says what to
type. Only ``cli`` turns these into an exit. Exit codes: `EXIT_CODES`.
"""

import difflib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXIT_CODES = {
    0: "ok",
    1: "failure",
    2: "bad usage or recipe",
    3: "gate, parity or a published figure missed",
    130: "interrupted",
}


class CompressError(Exception):
    """A failure that is reported as one message, without a traceback."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        message = message.removesuffix(".") if message.endswith("?.") else message  # after `nearest`
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def full_message(self) -> str:
        """The message with its hint, in one line."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(CompressError):
    """An invalid command, option or recipe."""

    exit_code = 2


class DataError(CompressError):
    """Data that cannot be read or does not fit the task; the message names file and row."""


class ModelError(CompressError):
    """A model that cannot be found, read, built or changed as requested."""


class DeviceUnavailable(ModelError):
    """A device that this machine, or this build of a runtime, does not have."""


class ScreenedOut(CompressError):
    """A variant that a short comparison found not worth scoring and timing; it did not fail."""


class StepIncomplete(CompressError):
    """A part of a step failed; the next run tries it again, and what the step left so far is a result."""


class OutOfMemory(ModelError):
    """A batch or a model that does not fit in memory."""


class MissingExtra(CompressError):
    """An optional library is not installed; the message names the extra that contains it."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(
            f"{library} is needed here and is not installed.",
            hint=f"pip install 'compress-encoders[{extra}]'",
        )


class GateMissed(CompressError):
    """The run is complete, but no variant passed the recipe's gate."""

    exit_code = 3


class ParityMissed(CompressError):
    """An export whose outputs differ from its model's by more than its precision explains."""

    exit_code = 3


class ClaimMissed(CompressError):
    """A published model that is measured as worse than what was published of it."""

    exit_code = 3


DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, an exceeded quota and a file that reached its limit."""
FREE_SPACE = "free some disk space; the same command then resumes from finished steps and the last checkpoint"


OF_PATHS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)
"""Error numbers of a path that this user, or the system, cannot have."""
SHOWN_PATH = 200
"""Characters of a path that such a message shows: whoever leaves the model out of a command gives a text as one."""


def unexpected(error: Exception) -> CompressError:
    """Return an exception as one message: our own as they are, a full disk as such, whichever library met it."""
    if isinstance(error, CompressError):
        return error
    text = f"{type(error).__name__}: {error}"
    if any(os.strerror(number) in text for number in DISK_FULL):
        return CompressError(f"a file could not be written: {error}", hint=FREE_SPACE)
    if isinstance(error, OSError) and error.errno in OF_PATHS and error.filename is not None:
        return UsageError(f"{str(error.filename)[:SHOWN_PATH]} cannot be used: {error.strerror}.")
    return CompressError(f"unexpected failure: {text}", hint="COMPRESS_DEBUG=1 shows where; please report it")


@dataclass(frozen=True)
class Problem:
    """One problem of a recipe: its key path, and a message with what is expected."""

    path: tuple[str | int, ...]
    message: str
    line: int | None = None

    def __str__(self) -> str:
        """Return ``line 4, distill.soft_labl: unknown key; did you mean soft_label?``."""
        key = ".".join(str(part) for part in self.path) or "recipe"
        return f"line {self.line}, {key}: {self.message}" if self.line else f"{key}: {self.message}"


MAX_SHOWN = 20
"""Problems of a recipe that are printed; after a misplaced indentation there may be thousands."""


class RecipeError(UsageError):
    """All problems of a recipe at once."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        count = len(self.problems)
        head = f"{source}: {pluralize(count, 'problem')}"
        further = [f"… and {count - MAX_SHOWN:,} more"] if count > MAX_SHOWN else []
        super().__init__("\n  ".join([head, *map(str, self.problems[:MAX_SHOWN]), *further]))


def first_error(error: Any) -> str:
    """Return what a pydantic error's first entry is about, what is expected there and what was given."""
    first = error.errors()[0]
    path, given = ".".join(_visible(part) for part in first["loc"] if part != "[key]"), repr(first["input"])[:60]
    reason = first["msg"].removeprefix("Input ").partition(", ")[0]
    if first["type"] == "json_invalid":
        return f"it is not JSON: {first['ctx']['error']}" if first["input"].strip() else "it is empty"
    if first["type"] == "missing":
        return f"{path} is missing"
    if first["type"] == "too_short" and not first["input"]:
        return f"{path} is empty"
    if first["type"] == "value_error":
        return f"{path or 'the file'}: {first['msg'].removeprefix('Value error, ')}"
    if first["loc"][-1:] == ("[key]",):
        return f"{path}: the key {reason}"
    return f"{path or 'the file'} {reason}, got {given}"


def _visible(part: str | int) -> str:
    """A key of a file as it is shown: what would break or redirect a line is escaped, and what is long is cut."""
    text = str(part)
    return text if text.isprintable() and len(text) <= 80 else repr(text[:80])


def pluralize(count: int, one: str) -> str:
    """Return `1 choice`, `1,204 choices`."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def group_by_reason(reasons: Iterable[tuple[str, str]]) -> dict[str, str]:
    """From pairs of name and reason, the names of each reason, separated by commas."""
    groups: dict[str, list[str]] = {}
    for name, reason in reasons:
        groups.setdefault(reason, []).append(name)
    return {reason: ", ".join(names) for reason, names in groups.items()}


def format_bytes(count: float) -> str:
    """Format a number of bytes: `2.0 GiB`, `15 bytes`."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count:.0f} bytes"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest known one, and all of them if they are few."""
    names = sorted(map(str, known))
    return suggestion(name, names) + (f" (known: {', '.join(names)})" if 0 < len(names) <= 20 else "")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean NAME?` with the closest known name; nothing where none is close."""
    close = closest(name, known)
    return f"; did you mean {close}?" if close else ""


def nearest_file(path: Path, names: Iterable[str]) -> str:
    """Return `; did you mean FOLDER/NAME?` with the closest of the names in the folder of a file that is not there."""
    close = closest(path.name, names)
    return f"; did you mean {path.parent / close}?" if close else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the closest known name; None where none is close."""
    return next(iter(difflib.get_close_matches(name, sorted(map(str, known)), n=1)), None)
