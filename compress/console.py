"""The only place that prints.

Data goes to stdout, everything said about the work to stderr: ``compress ls --format json | jq`` sees data alone.
Nothing is configured at import and rich is imported when it is first needed: ``compress --help`` pays for neither.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO

from compress.errors import CompressError
from compress.terminal_table import PIPE, as_table, blocks, cell, drawing, fits, plain

if TYPE_CHECKING:
    import rich.console
    import rich.progress

Format = Literal["human", "json", "quiet"]

PLAIN_INTERVAL = 10.0
"""Seconds between two lines of progress where there is no terminal."""


class Progress(Protocol):
    """What a long piece of work reports to."""

    def advance(self, amount: float = 1, note: str = "", left: str | None = None) -> None:
        """So much more is done; ``note`` is shown beside it (a loss, a score) until the next one.

        ``left`` says what is still to come where the caller knows better than the rate so far tells; nothing if it is
        empty.
        """
        ...


class Console:
    """Output in one of three formats.

    ``human`` draws tables and progress; ``json`` writes one document to stdout; ``quiet`` writes bare values to stdout
    and keeps notes and progress to itself. Warnings and errors are shown in every format.
    """

    def __init__(self, format: Format = "human", out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.format = format
        self._out = out
        self._err = err
        self._live: rich.console.Console | None = None

    @property
    def out(self) -> TextIO:
        """Where data goes; looked up on each use, since callers may redirect sys.stdout later."""
        return self._out or sys.stdout

    @property
    def err(self) -> TextIO:
        """Where everything else goes."""
        return self._err or sys.stderr

    def note(self, text: str) -> None:
        """Tell what is being done."""
        if self.format != "quiet":
            self._say(text)

    def warn(self, text: str) -> None:
        """Tell what the user should know before trusting the result."""
        self._say(f"warning: {text}")

    def error(self, exc: BaseException) -> None:
        """Tell a failure and what to do about it; in json one object on stderr, since stdout holds data alone."""
        hint = exc.hint if isinstance(exc, CompressError) else None
        message = str(exc) or type(exc).__name__
        if self.format == "json":
            code = exc.exit_code if isinstance(exc, CompressError) else 1
            fault = {"kind": type(exc).__name__, "message": message, "hint": hint, "exit_code": code}
            self._say(json.dumps({"error": fault}, ensure_ascii=False))
            return
        self._say(f"error: {message}")
        if hint:
            self._say(f"hint: {hint}")

    def line(self, text: str) -> None:
        """Write one line of data."""
        self.out.write(f"{text}\n")
        self.out.flush()

    def data(self, payload: Any, text: str | None = None) -> None:
        """Write a result: as json, or as ``text`` for people where it is given."""
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
            screen = drawing(self.out)
            if title:
                screen.print(plain(title), style="bold")
            drawn = fits(rows, names, screen.width)
            screen.print(as_table(rows, names) if drawn else plain("\n".join(blocks(rows, names))))
            return
        if title:
            self.line(title)
        page = io.StringIO()
        drawing(page, width=PIPE).print(as_table(rows, names))
        for line in page.getvalue().splitlines():
            self.line(line.rstrip())  # no blanks at the end, which a pipe would keep

    @contextmanager
    def progress(self, total: float | None, label: str, unit: str = "steps") -> Iterator[Progress]:
        """Show how far a piece of work is: a live bar on a terminal, else a plain line every ten seconds."""
        if self.format == "quiet":
            yield Silent()
        elif self.format == "human" and self.err.isatty() and self._live is None:
            with self._bar(total, label, unit) as bar:
                yield bar
        else:
            lines = Lines(self._say, total, label, unit)
            yield lines
            lines.close()

    @contextmanager
    def _bar(self, total: float | None, label: str, unit: str) -> Iterator[Progress]:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Display

        rate, left, note = (TextColumn(f"{{task.fields[{field}]}}", markup=False) for field in ("rate", "left", "note"))
        name = TextColumn("{task.description}", markup=False)
        self._live = drawing(self.err)
        try:
            columns = (name, BarColumn(), MofNCompleteColumn(), rate, left, note)
            with Display(*columns, console=self._live) as display:
                yield Bar(display, total, label, unit)
        finally:
            self._live = None

    def _say(self, text: str) -> None:
        """Write a line to stderr, above the live bar where there is one."""
        if self._live is not None:
            self._live.print(plain(text), soft_wrap=True)
            return
        self.err.write(f"{text}\n")
        self.err.flush()


class Silent:
    """Progress that nobody asked to see."""

    def advance(self, amount: float = 1, note: str = "", left: str | None = None) -> None:
        """Say nothing."""


class Bar:
    """Progress on a terminal."""

    def __init__(self, display: rich.progress.Progress, total: float | None, label: str, unit: str) -> None:
        self._display = display
        self._unit = unit
        self._task = display.add_task(label, total=total, rate="", left="", note="")
        self._note = ""

    def advance(self, amount: float = 1, note: str = "", left: str | None = None) -> None:
        """Move the bar."""
        self._note = note or self._note
        task = self._display.tasks[0]
        rate = f"{throughput(task.speed)} {self._unit}/s" if task.speed else ""
        if left is None:
            left = "" if task.time_remaining is None else f"{duration(task.time_remaining)} left"
        self._display.update(self._task, advance=amount, rate=rate, left=left, note=self._note)


class Lines:
    """Progress in a log: a line now and then, so that a file stays readable and a silent hour is no riddle."""

    def __init__(
        self,
        say: Callable[[str], None],
        total: float | None,
        label: str,
        unit: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._total, self._label, self._unit, self._clock = say, total, label, unit, clock
        self._done = 0.0
        self._note = ""
        self._start = self._told = clock()

    def advance(self, amount: float = 1, note: str = "", left: str | None = None) -> None:
        """Count, and tell when the last line is old enough."""
        self._done += amount
        self._note = note or self._note
        now = self._clock()
        if now - self._told >= PLAIN_INTERVAL:
            self._told = now
            self._say(self._describe(now - self._start, left))

    def close(self) -> None:
        """Tell the end of work that was long enough to be told about."""
        elapsed = self._clock() - self._start
        if elapsed >= PLAIN_INTERVAL:
            self._say(f"{self._label}: {self._done:g} {self._unit} in {duration(elapsed)}")

    def _describe(self, elapsed: float, left: str | None) -> str:
        rate = self._done / elapsed if elapsed > 0 else 0.0
        parts = [f"{self._done:g}/{self._total:g} {self._unit}" if self._total else f"{self._done:g} {self._unit}"]
        parts.append(f"{throughput(rate)} {self._unit}/s")
        if left is None and self._total and rate > 0:
            left = f"{duration(max(0.0, self._total - self._done) / rate)} left"
        return f"{self._label}: " + ", ".join(filter(None, [*parts, left, self._note]))


def throughput(rate: float) -> str:
    """A rate with the digits that mean something: one below ten, none above."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def duration(seconds: float) -> str:
    """Seconds as people say them: 8 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def jsonable(value: Any) -> Any:
    """The nearest JSON to a value; a number that JSON has no word for (not a number, infinite) becomes null."""
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
    return _unfolded(value)


def _unfolded(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    for converter in ("model_dump", "tolist"):  # a pydantic model; a numpy array or scalar
        convert = getattr(value, converter, None)
        if convert is not None:
            return jsonable(convert())
    return str(value)
