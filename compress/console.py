"""All output of the package: data to stdout; notes, warnings, errors and progress to stderr.

So ``compress ls --format json | jq`` reads data alone. Nothing is configured at import, and rich is imported when it is
first needed.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from compress.errors import CompressError, UsageError
from compress.terminal import (
    LOG_INTERVAL,
    PIPE_WIDTH,
    OverallLine,
    Progress,
    amount,
    as_blocks,
    as_table,
    cell,
    duration,
    fits,
    live_line,
    overall_line,
    plain,
    rich_console,
)

if TYPE_CHECKING:
    import rich.console

Format = Literal["human", "json", "quiet"]

__all__ = ["COMMANDS", "Console", "Format", "Progress", "duration", "program_name", "with_program"]

PROGRAM = "compress"
COMMANDS = (
    "init",
    "label",
    "ls",
    "plan",
    "run",
    "search",
    "pretrain",
    "clean",
    "report",
    "bench",
    "probe",
    "export",
    "publish",
    "zoo",
    "pull",
    "verify",
    "predict",
    "serve",
    "doctor",
)
"""The commands of the program, in the order of its help."""
TYPED_COMMAND = re.compile(rf"(?<![\w./-])(?<!-m ){PROGRAM}(?= +(?:{'|'.join(COMMANDS)})\b)")
"""The program's name in front of one of its commands."""


def program_name() -> str:
    """Return the name by which the program was called, as it can be typed again: on macOS `compress` is another one."""
    called = Path(sys.argv[0] if sys.argv else "")
    if called.name == "__main__.py" and called.parent.name == PROGRAM:
        return f"python -m {PROGRAM}"
    return called.stem if called.stem in (PROGRAM, f"{PROGRAM}-encoders") else PROGRAM


def is_utf8(stream: TextIO) -> bool:
    """Whether a stream can hold every character; one in memory can."""
    return codecs.lookup(stream.encoding or "utf-8").name == "utf-8"


def escape_other_characters() -> None:
    """Show the characters that the encoding of stdout or stderr does not have as their numbers."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not is_utf8(stream):
            stream.reconfigure(errors="backslashreplace")


def with_program(text: str, program: str) -> str:
    """Return a message whose commands start with ``program``."""
    return text if program == PROGRAM else TYPED_COMMAND.sub(program, text)


class Console:
    """Output in one of three formats.

    ``human`` draws tables and progress; ``json`` writes one document to stdout; ``quiet`` writes bare values to stdout
    and omits notes and progress. Warnings and errors are shown in every format.
    """

    def __init__(
        self, format: Format = "human", out: TextIO | None = None, err: TextIO | None = None, *, verbose: bool = False
    ) -> None:
        self.format = format
        self.verbose = verbose
        """Whether a run shows what it otherwise only logs."""
        self.live: OverallLine | None = None
        """The line of a run that is shown at the moment."""
        self.began: float | None = None
        """When the first line of a run was shown: all later ones count from then."""
        self.program = program_name()
        self._out = out
        self._err = err
        self._screen: rich.console.Console | None = None

    @property
    def out(self) -> TextIO:
        """The stream of data; looked up on each use, since callers may redirect sys.stdout later."""
        stream = self._out or sys.stdout
        if stream is None:  # as Python sets it where the shell closed it
            raise UsageError("results cannot be written: stdout is closed.")
        return stream

    @property
    def err(self) -> TextIO:
        """The stream of everything else."""
        return self._err or sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123

    @property
    def width(self) -> int:
        """Columns of the screen that tables are written to, or of a pipe."""
        return rich_console(self.out).width if self.out.isatty() else PIPE_WIDTH

    def note(self, text: str) -> None:
        """Write what is being done."""
        if self.format != "quiet":
            self._write_line(with_program(text, self.program))

    def warn(self, text: str) -> None:
        """Write what the user should know before trusting the result."""
        self._write_line(with_program(f"warning: {text}", self.program))

    def error(self, error: CompressError) -> None:
        """Write an error and its hint; in json one object on stderr, since stdout holds data alone."""
        if self.format == "json":
            content = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
            shown = {"error": {**content, "exit_code": error.exit_code}}
            self._write_line(to_json(shown, ascii_only=not is_utf8(self.err)))
            return
        self._write_line(with_program(f"error: {error.message}", self.program))
        if error.hint:
            self._write_line(with_program(f"hint: {error.hint}", self.program))

    def line(self, text: str) -> None:
        """Write one line of data."""
        self.out.write(f"{text}\n")
        self.out.flush()

    def data(self, payload: Any, text: str | None = None) -> None:
        """Write a result: as ``text`` where it is given and the format is not json, else as json."""
        if self.format == "json" or text is None:
            self.line(to_json(payload, indent=2, ascii_only=not is_utf8(self.out)))
        else:
            self.line(with_program(text, self.program))

    def jsonl(self, payload: Any) -> None:
        """Write one result of a stream as one line of json."""
        self.line(to_json(payload, ascii_only=not is_utf8(self.out)))

    def table(
        self,
        rows: Sequence[Mapping[str, Any]],
        columns: Sequence[str] | None = None,
        title: str = "",
        right: Collection[str] = (),
    ) -> None:
        """Write rows: drawn for people, a list of objects in json, tab-separated without a head in quiet.

        Columns of numbers are aligned to the right, and those that ``right`` names.
        """
        names = list(columns) if columns is not None else list(rows[0]) if rows else []
        if self.format == "json":
            self.data([{name: row.get(name) for name in names} for row in rows])
        elif self.format == "quiet":
            for row in rows:
                self.line("\t".join(cell(row.get(name)) for name in names))
        else:
            self._draw(rows, names, title, right)

    def _draw(
        self, rows: Sequence[Mapping[str, Any]], names: Sequence[str], title: str, right: Collection[str]
    ) -> None:
        screen = rich_console(self.out, width=self.width)
        if title:
            screen.print(plain(title), style="bold")
        fitting = fits(rows, names, screen.width)
        screen.print(as_table(rows, names, right) if fitting else plain("\n".join(as_blocks(rows, names))))

    @contextmanager
    def overall(self) -> Iterator[OverallLine | None]:
        """Show the state of a run in a live line; None where there is no terminal."""
        if not self.has_live_line or self._screen is not None:
            yield None
            return
        self._screen = rich_console(self.err)
        self.began = time.monotonic() if self.began is None else self.began
        try:
            with overall_line(self._screen, self.began) as self.live:
                yield self.live
        finally:
            self._screen = self.live = None

    @contextmanager
    def progress(self, total: float | None, label: str, unit: str = "steps") -> Iterator[Progress]:
        """Show the progress of a piece of work: on a terminal in a live line, else in a line every ten seconds."""
        if self.has_live_line and self._screen is None:
            self._screen = rich_console(self.err)
            try:
                with live_line(self._screen, total, label, unit) as work:
                    yield work
            finally:
                self._screen = None
        else:
            work = Progress(lambda state: self.note(f"{label}: {state}"), total, unit, LOG_INTERVAL)
            yield work
            if work.elapsed >= LOG_INTERVAL:
                self.note(f"{label}: {amount(work.done)} {unit} in {duration(work.elapsed)}")

    @property
    def has_live_line(self) -> bool:
        """Whether work is shown in a line that changes: on a terminal, for people."""
        return self.format == "human" and self.err.isatty()

    def _write_line(self, text: str) -> None:
        """Write a line to stderr, above the live line where there is one."""
        if self._screen is not None:
            self._screen.print(plain(text), soft_wrap=True)
            return
        self.err.write(f"{text}\n")
        self.err.flush()


def to_json(value: Any, indent: int | None = None, *, ascii_only: bool = False) -> str:
    """Serialise any result as JSON, of ASCII alone or not; NaN and infinity become null."""
    import pydantic_core

    text = pydantic_core.to_json(value, indent=indent, inf_nan_mode="null", fallback=_plain_value).decode()
    return re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], text) if ascii_only else text


def _plain_value(value: Any) -> Any:
    """Convert an array of numpy to lists, and what has no JSON type to text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
