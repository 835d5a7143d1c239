"""Parses the options of `compress bench`; messages name the option and what it expects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compress.errors import UsageError, nearest
from compress.measure.timing.timing_inputs import Text
from compress.recipe.field_types import UNITS, seconds_of
from compress.recipe.limits import MAX_BATCH, MAX_LENGTH, MAX_THREADS
from compress.recipe.measure_schema import Measure, Target

LIMITS = {"threads": MAX_THREADS, "batch": MAX_BATCH, "length": MAX_LENGTH, "callers": 10_000}
EXAMPLES = {"batch": "1,8,32", "length": "32,128"}
MIN_ROUNDS, MAX_ROUNDS = 3, 10_000
"""Fewer do not show how much rounds differ."""
MAX_TURN = 3_600
MAX_BUDGET = 1_000_000
"""Seconds."""
DEVICES = ("cpu", "cuda")
DURATION = f"expected seconds, or a duration such as 30s or 5m ({', '.join(UNITS)}), at most {MAX_BUDGET:,} seconds"

Length = int | Literal["data"]


@dataclass(frozen=True)
class GridOptions:
    """Batches and lengths besides the targets' own; an empty one is the target's own."""

    batch: tuple[int, ...] = ()
    length: tuple[Length, ...] = ()

    def __bool__(self) -> bool:
        """Whether a grid was requested."""
        return bool(self.batch or self.length)


def read_target(text: str) -> Target:
    """Parse `cpu,threads=2,batch=8,length=64`."""
    device, *pairs = [part.strip() for part in text.split(",")]
    if device not in DEVICES:
        raise UsageError(f"--target {text}: no device is called '{device}'{nearest(device, DEVICES)}")
    keys = ("threads", "batch", "length")
    fields: dict[str, Any] = {"device": device}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals and name in keys:
            raise UsageError(f"--target {text}: {name} needs a number: {name}=8")
        if not equals or name not in keys:
            guess = nearest(name, keys).partition(" (")[0]
            raise UsageError(f"--target {text}: '{pair}' is not one of threads=N, batch=N, length=N{guess}")
        if name in fields:
            raise UsageError(f"--target {text}: {name} is given twice.")
        fields[name] = _number(value, f"--target {text}: {name}", name)
    return Target.model_validate(fields)


def read_targets(texts: Sequence[str]) -> tuple[Target, ...]:
    """Parse all targets, which must differ; the default is one CPU thread."""
    targets = tuple(map(read_target, texts)) or (Target(device="cpu"),)
    for text, target in zip(texts, targets, strict=False):
        if targets.count(target) > 1:
            raise UsageError(f"--target {text} is given twice.")
    return targets


def read_grid(texts: Sequence[str]) -> GridOptions:
    """Parse `batch=1,8,32` and `length=32,128`, each in an option of its own or both in one with a space between."""
    axes: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        for word in text.split() or [text]:
            name, equals, values = word.partition("=")
            if not equals and name in EXAMPLES:
                raise UsageError(f"--grid {text}: {name} needs a number, or several: {name}={EXAMPLES[name]}")
            if not equals or name not in EXAMPLES:
                raise UsageError(f"--grid {text}: expected batch=N,N,… or length=N,N,…{nearest(name, EXAMPLES)}")
            if name in axes:
                raise UsageError(f"--grid {text}: {name} is given twice; write {name}=1,8 in one.")
            numbers = (_number(value.strip(), f"--grid {text}", name) for value in values.split(","))
            axes[name] = tuple(dict.fromkeys(numbers))
    return GridOptions(**axes)


def read_callers(text: str | None) -> tuple[int, ...]:
    """Parse `1,2,4`: each number once, in increasing order."""
    if text is None:
        return ()
    return tuple(sorted({int(_number(one.strip(), f"--callers {text}", "callers")) for one in text.split(",")}))


def read_settings(
    rounds: int | None = None, seconds: float | None = None, budget: str | None = None, callers: str | None = None
) -> Measure:
    """Return the settings of the sessions; what was not given has its default."""
    if budget is not None and rounds is not None:
        raise UsageError("--budget and --rounds cannot be combined: a budget runs as many rounds as fit.")
    if rounds is not None and not MIN_ROUNDS <= rounds <= MAX_ROUNDS:
        raise UsageError(f"--rounds {rounds}: expected a whole number from {MIN_ROUNDS} to {MAX_ROUNDS}.")
    if seconds is not None and not 0 < seconds <= MAX_TURN:
        raise UsageError(f"--seconds {seconds:g}: expected a number of seconds above 0, at most {MAX_TURN}.")
    given = {"rounds": rounds, "seconds": seconds, "budget": _duration(budget), "callers": read_callers(callers)}
    return Measure.model_validate({name: value for name, value in given.items() if value is not None})


def read_texts(
    path: Path, count: tuple[int, int | None] | None, check: Callable[[Text], object] = lambda text: None
) -> list[Text]:
    """Read the rows of a file, one a line with tabs between its texts.

    Args:
        path: of the file.
        count: least and most texts of a row; None: as the first line has.
        check: raises for a row that cannot be used; the error is reported with its line.
    """
    rows: list[Text] = []
    try:
        with path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                where = f"--texts {path}: line {number}"
                line = _decode(raw, where)
                if not line.strip():
                    continue
                if count is None:
                    count = (2, 2) if "\t" in line else (1, 1)
                rows.append(_row(line, count, where))
                try:
                    check(rows[-1])
                except UsageError as error:
                    raise UsageError(f"{where}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise UsageError(f"--texts {path} cannot be read: {error.strerror}") from error
    if not rows:
        raise UsageError(f"--texts {path} has no text.")
    return rows


def _decode(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: byte 0x{error.object[error.start]:02x} is not UTF-8.") from error


def _row(line: str, count: tuple[int, int | None], where: str) -> Text:
    """Split a line into its texts; an extra column would be timed as text that was not meant."""
    texts, (least, most) = tuple(line.split("\t")), count
    if least <= len(texts) <= (most or len(texts)):
        return texts if least > 1 else line
    if least == 1:
        raise UsageError(f"{where}: expected one text and got {len(texts)}, with tabs between: {line[:60]!r}.")
    expected = "two texts with one tab between" if most == 2 else "two texts or more with tabs between"
    raise UsageError(f"{where}: expected {expected}, got {len(texts)}: {line[:60]!r}.")


def with_lengths(targets: Iterable[Target], grid: GridOptions, texts: bool, default: int) -> tuple[Target, ...]:
    """Return the targets with ``default`` pieces if there are no texts and no length was requested."""
    requested = [target for target in targets if "length" in target.model_fields_set]
    if not texts and ("data" in grid.length or any(target.length == "data" for target in requested)):
        raise UsageError("length=data uses the lengths of texts; add --texts FILE.")
    resolved = tuple(
        target if texts or target.length != "data" else target.model_copy(update={"length": default})
        for target in targets
    )
    if texts and "data" not in grid.length and all(target.length != "data" for target in resolved):
        raise UsageError("--texts is not used: every target has a length of its own; length=data uses the texts'.")
    return resolved


def _duration(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(seconds_of(text.strip()))
    except ValueError:
        raise UsageError(f"--budget {text}: {DURATION}.") from None
    if not 0 < seconds <= MAX_BUDGET:
        raise UsageError(f"--budget {text}: {DURATION}.")
    return seconds


def _number(value: str, where: str, name: str) -> Length:
    """Return a whole number from 1 to the limit of ``name``, or `data` for a length."""
    if name == "length" and value == "data":
        return "data"
    most, alternative = LIMITS[name], " or data" if name == "length" else ""
    digits = value.lstrip("0") if value.isascii() and value.isdecimal() else ""
    if not digits or len(digits) > len(str(most)) or int(digits) > most:
        shown = value if len(value) <= 40 else f"{value[:40]}…"
        raise UsageError(f"{where}: expected a whole number from 1 to {most}{alternative}, got '{shown}'.")
    return int(digits)
