"""Shared by benchmarks that publish a report: a report saved after every result, and a main function.

The report is rewritten with every result, so a killed run leaves a complete file. Its `about` distinguishes it from the
report of a pipeline run in the same folder of reports.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from pydantic import ValidationError

from compress import __version__
from compress.console import Console
from compress.errors import CompressError, first_error
from compress.measure.machine_snapshot import MachineSnapshot, snapshot_machine
from compress.measure.result_base import ResultModel
from compress.storage.atomic_write import atomic_write


class Report(ResultModel):
    """How it was created and where it ran; each benchmark adds its results."""

    schema_version: Literal[1] = 1
    about: str
    begun_at: str
    made_by: str
    command: str | None = None
    """The command to repeat it."""
    trial: bool = False
    """Too short for meaningful figures."""
    surroundings: MachineSnapshot | None = None
    load_after: float | None = None
    """Load of the last minute when the run ended; the one before it began is in the surroundings."""
    seconds: float | None = None
    """None where the run did not finish."""

    @property
    def failed(self) -> bool:
        """Whether the exit code is 1."""
        return False


class Keyed(Protocol):
    """A result with a unique name."""

    @property
    def key(self) -> str:
        """The name."""
        ...


R = TypeVar("R", bound=Report)
K = TypeVar("K", bound=Keyed)


class Store(Generic[R]):
    """A report on disk, rewritten with every result; without a folder it stays in memory."""

    def __init__(self, report: R, folder: Path | None, page: Callable[[R], str]) -> None:
        self.report = report
        self._folder, self._page = folder, page
        self._start = time.monotonic()
        self.earlier = 0.0
        """Seconds of work before this start, where a stored report is completed."""

    def resume(self) -> bool:
        """Go on with the stored report if it has the same command; return whether it has."""
        path = self._folder and self._folder / "report.json"
        if not path or not path.is_file():
            return False
        try:
            stored = type(self.report).model_validate_json(path.read_bytes())
        except ValidationError as error:
            what = f"{path} is no report of this benchmark: {first_error(error)}"
            raise CompressError(what, hint="give another folder with --out, or remove the file") from error
        if stored.command != self.report.command:
            return False
        self.report, self.earlier = stored.model_copy(update={"seconds": None}), stored.seconds or 0.0
        return True

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def update(self, **facts: object) -> None:
        """Update fields of the report and write it."""
        self.report = self.report.model_copy(update=facts)
        if self._folder is None:
            return
        atomic_write(self._folder / "report.json", self.report.model_dump_json(indent=2) + "\n")
        atomic_write(self._folder / "report.md", self._page(self.report))


def in_place(findings: Iterable[K], one: K) -> tuple[K, ...]:
    """Return the results with the one of this key replaced."""
    return tuple(one if each.key == one.key else each for each in findings)


def beginning(command: str | None, trial: bool) -> dict[str, Any]:
    """Return the fields of a report without results."""
    made_by = f"compress {__version__}"
    return {
        "begun_at": now(),
        "made_by": made_by,
        "command": command,
        "trial": trial,
        "surroundings": snapshot_machine(),
    }


def now() -> str:
    """Return the current time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def carry_out(
    store: Store[R],
    console: Console,
    work: Callable[[Path], None],
    show: Callable[[R, Console], None],
    folder: Path | None = None,
) -> int:
    """Do the work in ``folder``, by default a temporary one, and show the results, even after an error.

    Returns 0, 1 where the report has failures, 130 where it was interrupted.
    """
    try:
        prefix = f"compress-{store.report.about}-"
        with nullcontext(folder) if folder else tempfile.TemporaryDirectory(prefix=prefix) as place:
            work(Path(place).resolve())
        store.update(seconds=store.earlier + store.seconds, load_after=snapshot_machine().load)
    except CompressError as error:
        console.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        console.warn("interrupted; the results so far are stored.")
        return 130
    finally:
        show(store.report, console)
    return 1 if store.report.failed else 0


def positive(text: str) -> int:
    """Parse an option that is a number from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return value


def chosen(parser: argparse.ArgumentParser, option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Parse a comma-separated list of known names."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"{option}: unknown name '{unknown[0]}'; expected one or more of {', '.join(known)}")
    return names


def run(main: Callable[[], int]) -> None:
    """Run as a program: offline, and SIGTERM cleans up like Ctrl-C."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except CompressError as error:
        Console().error(error)
        sys.exit(error.exit_code)
