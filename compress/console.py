"""All output of the package: data to stdout; notes, warnings, errors and progress to stderr.

So ``compress ls --format json | jq`` reads data alone. Nothing is configured at import, and rich is imported when it is
first needed.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TextIO

from compress.errors import CompressError, UsageError
from compress.terminal.progress_line import LiveLine, LogLines, Progress, Silent, duration, live_line, throughput
from compress.terminal.terminal_table import PIPE_WIDTH, as_blocks, as_table, cell, fits, plain, rich_console

if TYPE_CHECKING:
    import rich.console

Format = Literal["human", "json", "quiet"]

__all__ = ["Console", "Format", "Progress", "duration", "jsonable", "throughput"]


class Console:
    """Output in one of three formats.

    ``human`` draws tables and progress; ``json`` writes one document to stdout; ``quiet`` writes bare values to stdout
    and omits notes and progress. Warnings and errors are shown in every format.
    """

    def __init__(self, format: Format = "human", out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.format = format
        self._out = out
        self._err = err
        self._screen: rich.console.Console | None = None
        self._line: LiveLine | None = None

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

    def note(self, text: str) -> None:
        """Write what is being done."""
        if self.format != "quiet":
            self._write_line(text)

    def warn(self, text: str) -> None:
        """Write what the user should know before trusting the result."""
        self._write_line(f"warning: {text}")

    def error(self, exc: BaseException) -> None:
        """Write an error and its hint; in json one object on stderr, since stdout holds data alone."""
        hint = exc.hint if isinstance(exc, CompressError) else None
        message = str(exc) or type(exc).__name__
        if self.format == "json":
            code = exc.exit_code if isinstance(exc, CompressError) else 1
            content = {"kind": type(exc).__name__, "message": message, "hint": hint, "exit_code": code}
            self._write_line(json.dumps({"error": content}, ensure_ascii=False))
            return
        self._write_line(f"error: {message}")
        if hint:
            self._write_line(f"hint: {hint}")

    def line(self, text: str) -> None:
        """Write one line of data."""
        self.out.write(f"{text}\n")
        self.out.flush()

    def data(self, payload: Any, text: str | None = None) -> None:
        """Write a result: as ``text`` where it is given and the format is not json, else as json."""
        if self.format == "json" or text is None:
            self.line(json.dumps(jsonable(payload), indent=2, ensure_ascii=False))
        else:
            self.line(text)

    def jsonl(self, payload: Any) -> None:
        """Write one result of a stream as one line of json."""
        self.line(json.dumps(jsonable(payload), ensure_ascii=False))

    def table(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None, title: str = "") -> None:
        """Write rows: drawn for people, a list of objects in json, tab-separated without a head in quiet."""
        names = list(columns) if columns is not None else list(rows[0]) if rows else []
        if self.format == "json":
            self.data([{name: row.get(name) for name in names} for row in rows])
        elif self.format == "quiet":
            for row in rows:
                self.line("\t".join(cell(row.get(name)) for name in names))
        else:
            self._draw(rows, names, title)

    def _draw(self, rows: Sequence[Mapping[str, Any]], names: Sequence[str], title: str) -> None:
        if self.out.isatty():
            screen = rich_console(self.out)
            if title:
                screen.print(plain(title), style="bold")
            has_room = fits(rows, names, screen.width)
            screen.print(as_table(rows, names) if has_room else plain("\n".join(as_blocks(rows, names))))
            return
        if title:
            self.line(title)
        page = io.StringIO()
        rich_console(page, width=PIPE_WIDTH).print(as_table(rows, names))
        for line in page.getvalue().splitlines():
            self.line(line.rstrip())  # without trailing blanks

    @contextmanager
    def step(self, label: str) -> Iterator[None]:
        """Show a step while it runs: on a terminal one live line, which also shows its progress; else a plain line."""
        if not self._is_terminal:
            self.note(label)
            yield
            return
        began = time.monotonic()
        try:
            with self._live(label):
                yield
        finally:
            self.note(f"{label}  {duration(time.monotonic() - began)}")

    @contextmanager
    def progress(self, total: float | None, label: str, unit: str = "steps") -> Iterator[Progress]:
        """Show the progress of a piece of work: on a terminal's live line, else in a plain line every ten seconds."""
        if self.format == "quiet":
            yield Silent()
        elif self._line is not None and not self._line.is_busy:
            with self._line.work(total, label, unit) as line:
                yield line
        elif self._is_terminal and self._line is None:
            with self._live(label) as line, line.work(total, label, unit):
                yield line
        else:
            lines = LogLines(self._write_line, total, label, unit)
            yield lines
            lines.close()

    @property
    def _is_terminal(self) -> bool:
        return self.format == "human" and self.err.isatty()

    @contextmanager
    def _live(self, label: str) -> Iterator[LiveLine]:
        self._screen = rich_console(self.err)
        try:
            with live_line(self._screen, label) as self._line:
                yield self._line
        finally:
            self._screen = self._line = None

    def _write_line(self, text: str) -> None:
        """Write a line to stderr, above the live line where there is one."""
        if self._screen is not None:
            self._screen.print(plain(text), soft_wrap=True)
            return
        self.err.write(f"{text}\n")
        self.err.flush()


def jsonable(value: Any) -> Any:
    """Convert a value to JSON types; NaN and infinity become null."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(jsonable, value), key=str)
    if isinstance(value, (list, tuple)):
        return [jsonable(entry) for entry in value]
    return _from_object(value)


def _from_object(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    for converter in ("model_dump", "tolist"):  # a pydantic model; a numpy array or scalar
        convert = getattr(value, converter, None)
        if convert is not None:
            return jsonable(convert())
    return str(value)
