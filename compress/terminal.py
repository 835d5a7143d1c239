"""What people see in a terminal: the progress of long work, and tables. Used by ``console`` alone.

Progress is a live line on a terminal, else a plain line every ten seconds (of a run: every minute); a table that does
not fit the terminal becomes a block a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import rich.console
    import rich.table


LOG_INTERVAL = 10.0
"""Seconds between two lines of progress where there is no terminal."""


class Progress:
    """A long piece of work: how much of it is done."""

    def __init__(
        self,
        show: Callable[[str], object],
        total: float | None,
        unit: str,
        interval: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.unit, self.done, self.note = total, unit, 0.0, ""
        self._show, self._interval, self._shown = show, interval, 0.0
        self._clock, self._start = clock, clock()

    def advance(self, amount: float = 1, note: str = "", left: str | None = None) -> None:
        """Record that ``amount`` more is done; ``note`` (a loss, a score) is shown until the next one.

        ``left`` replaces the remaining time computed from the rate so far; an empty text shows none.
        """
        self.done += amount
        self.note = note or self.note
        if self.elapsed - self._shown >= self._interval:
            self._shown = self.elapsed
            self._show(self.describe(left))

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    def describe(self, left: str | None = None) -> str:
        """Return `120/400 rows, 32 rows/s, 9 s left, loss 0.31`."""
        rate = self.done / self.elapsed if self.elapsed > 0 else 0.0
        speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
        count = f"{amount(self.done)}{f'/{amount(self.total)}' if self.total else ''} {self.unit}"
        if left is None and self.total and rate > 0:
            left = f"{duration(max(0.0, self.total - self.done) / rate)} left"
        return ", ".join(filter(None, [count, f"{speed} {self.unit}/s", left, self.note]))


def amount(value: float) -> str:
    """Return `0.5`, `400`, `1,234,567`."""
    return f"{value:,.10g}"


@contextmanager
def live_line(screen: rich.console.Console, total: float | None, label: str, unit: str) -> Iterator[Progress]:
    """Show a piece of work on the last line of a terminal, which disappears at the end."""
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display
    from rich.table import Column

    name = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
    cut = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    state = TextColumn("{task.fields[state]}", markup=False, table_column=cut)
    columns = (SpinnerColumn(), name, BarColumn(bar_width=16), TimeElapsedColumn(), state)
    with Display(*columns, console=screen, transient=True, expand=True) as display:
        task = display.add_task(label, total=total, state="")
        work = Progress(lambda state: display.update(task, completed=work.done, state=state), total, unit)
        yield work
        display.refresh()  # short work too is drawn once


class OverallLine:
    """The last line of a terminal during a run: time gone, time left, the stage, and the work at hand."""

    def __init__(self, draw: Callable[[], object]) -> None:
        self._draw = draw
        self._stage, self._work = "", ""
        self._left: Callable[[], str] = str

    def show(self, stage: str, left: Callable[[], str]) -> None:
        """Show another stage; ``left`` describes the time that is left whenever the line is drawn."""
        self._stage, self._left, self._work = stage, left, ""
        self._draw()

    @contextmanager
    def work(self, label: str, total: float | None, unit: str, logged: Progress) -> Iterator[Progress]:
        """Show the progress of a piece of work, which is ``logged`` too."""

        def show(state: str) -> None:
            self._work = label + state
            logged.done, logged.note = work.done, work.note
            logged.advance(0)

        work = Progress(show, total, unit)
        yield work
        logged.done, self._work = work.done, ""

    def text(self) -> str:
        """Return all but the time gone."""
        return " · ".join(filter(None, [self._left(), self._stage, self._work]))


@contextmanager
def overall_line(screen: rich.console.Console, began: float) -> Iterator[OverallLine]:
    """Show the state of a run on the last line of a terminal, which disappears at the end.

    Time gone is counted from ``began``: a search has several runs and one clock. A narrow terminal has it in two lines.
    """
    from rich.progress import Progress as Display
    from rich.progress import ProgressColumn, SpinnerColumn, Task, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class State(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(line.text(), overflow="fold")

    state = State(Column(overflow="fold", ratio=1))
    columns = (SpinnerColumn(), TimeElapsedColumn(), state)
    with Display(*columns, console=screen, transient=True, expand=True, refresh_per_second=4) as display:
        line = OverallLine(display.refresh)
        added = display.add_task("", total=None)
        display.tasks[added].start_time = began
        yield line


def duration(seconds: float) -> str:
    """Format seconds for people: 8 s, 3 min 20 s, 2 h 5 min."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, rest = divmod(total, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


Rows = Sequence[Mapping[str, Any]]

MAX_UNFOLDED = 24
"""Columns up to this width have each value on one line; wider ones may fold."""
MIN_FOLDED = 16
"""Least width of a column that folds."""
GAP = 2
"""Characters between two columns."""
PIPE_WIDTH = 200
"""Width of tables that are not written to a terminal, where folding at 80 columns would be hard to read."""


def cell(value: Any) -> str:
    """Format one value."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(item) for item in value)
    return str(value)


def fits(rows: Rows, names: Sequence[str], width: int) -> bool:
    """Return whether the columns fit: narrow ones unfolded, each wide one with at least `MIN_FOLDED` characters."""
    widths = [widest(rows, name) for name in names]
    needed = sum(width if width <= MAX_UNFOLDED else MIN_FOLDED for width in widths)
    return needed + GAP * (len(names) - 1) <= width


def widest(rows: Rows, name: str) -> int:
    """Return the length of a column's longest line or of its name."""
    lines = (line for row in rows for line in cell(row.get(name)).split("\n"))
    return max([len(name), *map(len, lines)])


def as_blocks(rows: Rows, names: Sequence[str]) -> list[str]:
    """Format rows for a narrow terminal: a block a row, a line a value; cells without a value are omitted."""
    label = max(map(len, names[1:]), default=0)
    lines = []
    for row in rows:
        lines.append(cell(row.get(names[0])))
        lines += [f"  {name:<{label}}  {cell(row[name])}" for name in names[1:] if row.get(name) is not None]
        lines.append("")
    return lines[:-1]


def as_table(rows: Rows, names: Sequence[str], right: Collection[str] = ()) -> rich.table.Table:
    """Return a rich table; numbers, and the columns that ``right`` names, are right-aligned."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False, show_edge=False, collapse_padding=True)
    for name in names:
        numbers = bool(rows) and all(isinstance(row.get(name), (int, float, type(None))) for row in rows)
        short = widest(rows, name) <= MAX_UNFOLDED
        table.add_column(name, justify="right" if numbers or name in right else "left", overflow="fold", no_wrap=short)
    for row in rows:
        table.add_row(*(plain(cell(row.get(name))) for name in names))
    return table


def rich_console(file: TextIO, width: int | None = None) -> rich.console.Console:
    """Return a rich console that interprets no markup, highlighting or emoji."""
    from rich.console import Console

    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def plain(text: str) -> Any:
    """Return text that rich does not interpret as markup: a label may be called ``[red]``."""
    from rich.text import Text

    return Text(text)
