"""What the options of `compress bench` say, read with messages that name the option and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compress.errors import UsageError, nearest
from compress.measure.timing.timing_inputs import Text
from compress.recipe.field_types import UNITS, seconds_of
from compress.recipe.measure_schema import Measure, Target

TARGET_KEYS = ("threads", "batch", "length")
EXAMPLES = {"batch": "1,8,32", "length": "32,128"}
LEAST_ROUNDS = 3
"""Fewer do not tell how far rounds differ; `Measure` refuses them too."""
DEVICES = ("cpu", "cuda")
DURATION = f"expected seconds, or a duration such as 30s or 5m ({', '.join(UNITS)})"

Length = int | Literal["data"]


@dataclass(frozen=True)
class GridOptions:
    """Batches and lengths beside the targets' own; an empty one means the target's own."""

    batch: tuple[int, ...] = ()
    length: tuple[Length, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything was asked for."""
        return bool(self.batch or self.length)


def read_target(text: str) -> Target:
    """`cpu,threads=2,batch=8,length=64` as a target."""
    device, *pairs = [part.strip() for part in text.split(",")]
    if device not in DEVICES:
        raise UsageError(f"--target {text}: no device is called '{device}'{nearest(device, DEVICES)}")
    fields: dict[str, Any] = {"device": device}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals and name in TARGET_KEYS:
            raise UsageError(f"--target {text}: {name} needs a number: {name}=8")
        if not equals or name not in TARGET_KEYS:
            raise UsageError(f"--target {text}: '{pair}' is not one of threads=N, batch=N, length=N{_meant(name)}")
        if name in fields:
            raise UsageError(f"--target {text}: {name} is given twice.")
        fields[name] = _length(value, f"--target {text}: {name}") if name == "length" else _count(value, text, name)
    return Target.model_validate(fields)


def read_targets(texts: Sequence[str]) -> tuple[Target, ...]:
    """Every target, each once; one CPU thread where none is named."""
    targets = tuple(map(read_target, texts)) or (Target(device="cpu"),)
    for text, target in zip(texts, targets, strict=False):
        if targets.count(target) > 1:
            raise UsageError(f"--target {text} is given twice.")
    return targets


def read_grid(texts: Sequence[str]) -> GridOptions:
    """`batch=1,8,32` and `length=32,128`, each in an option of its own or both in one with a blank between."""
    found: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        for word in text.split() or [text]:
            name, equals, values = word.partition("=")
            if not equals and name in ("batch", "length"):
                raise UsageError(f"--grid {text}: {name} needs a number, or several: {name}={EXAMPLES[name]}")
            if not equals or name not in ("batch", "length"):
                raise UsageError(
                    f"--grid {text}: expected batch=N,N,… or length=N,N,…{nearest(name, ('batch', 'length'))}"
                )
            if name in found:
                raise UsageError(f"--grid {text}: {name} is given twice; write {name}=1,8 in one.")
            read = _length if name == "length" else _whole
            found[name] = tuple(dict.fromkeys(read(one.strip(), f"--grid {text}") for one in values.split(",")))
    return GridOptions(**found)


def read_callers(text: str | None) -> tuple[int, ...]:
    """`1,2,4` callers, each number once, the fewest first."""
    if text is None:
        return ()
    return tuple(sorted({_whole(one.strip(), f"--callers {text}") for one in text.split(",")}))


def read_settings(
    rounds: int | None = None, seconds: float | None = None, budget: str | None = None, callers: str | None = None
) -> Measure:
    """How long to look; what was not given keeps its default."""
    if budget is not None and rounds is not None:
        raise UsageError("--budget and --rounds cannot go together: a budget takes as many rounds as fit.")
    if rounds is not None and rounds < LEAST_ROUNDS:
        raise UsageError(f"--rounds {rounds}: expected a whole number from {LEAST_ROUNDS} up.")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise UsageError(f"--seconds {seconds:g}: expected a number of seconds above 0.")
    given = {"rounds": rounds, "seconds": seconds, "budget": _duration(budget), "callers": read_callers(callers)}
    return Measure.model_validate({name: value for name, value in given.items() if value is not None})


def read_lines(
    path: Path, parts: tuple[int, int | None] | None, check: Callable[[Text], object] = lambda text: None
) -> list[Text]:
    """The rows of a file, one a line with tabs between its texts: least and most of them; None: as the first line.

    What ``check`` says of a row is told with its line.
    """
    lines: list[Text] = []
    try:
        with path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                where = f"--texts {path}: line {number}"
                line = _decoded(raw, where)
                if not line.strip():
                    continue
                if parts is None:
                    parts = (2, 2) if "\t" in line else (1, 1)
                lines.append(_text(line, parts, where))
                _checked(lines[-1], check, where)
    except OSError as error:
        raise UsageError(f"--texts {path} cannot be read: {error.strerror}") from error
    if not lines:
        raise UsageError(f"--texts {path} holds no text.")
    return lines


def _checked(text: Text, check: Callable[[Text], object], where: str) -> None:
    try:
        check(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from error


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: byte 0x{error.object[error.start]:02x} is not UTF-8.") from error


def _text(line: str, parts: tuple[int, int | None], where: str) -> Text:
    """One row; a column too many would be measured as text that nobody meant."""
    found, (least, most) = tuple(line.split("\t")), parts
    if least <= len(found) <= (most or len(found)):
        return found if least > 1 else line
    if least == 1:
        raise UsageError(f"{where}: expected one text and got {len(found)}, with tabs between: {line[:60]!r}.")
    expected = "two texts with one tab between" if most == 2 else "two texts or more with tabs between"
    raise UsageError(f"{where}: expected {expected}, got {len(found)}: {line[:60]!r}.")


def with_lengths(targets: Iterable[Target], cells: GridOptions, texts: bool, default: int) -> tuple[Target, ...]:
    """Targets whose lengths can be had: `default` pieces where there are no texts and none was asked for."""
    asked = [target for target in targets if "length" in target.model_fields_set]
    if not texts and ("data" in cells.length or any(target.length == "data" for target in asked)):
        raise UsageError("length=data takes the lengths of texts; add --texts FILE.")
    known = tuple(
        target if texts or target.length != "data" else target.model_copy(update={"length": default})
        for target in targets
    )
    if texts and "data" not in cells.length and all(target.length != "data" for target in known):
        raise UsageError("--texts is not used: every target has a length of its own; length=data takes the texts'.")
    return known


def _duration(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(seconds_of(text.strip()))
    except ValueError:
        raise UsageError(f"--budget {text}: {DURATION}.") from None
    if not 0 < seconds < float("inf"):
        raise UsageError(f"--budget {text}: {DURATION}.")
    return seconds


def _meant(name: str) -> str:
    return nearest(name, TARGET_KEYS).partition(" (")[0]


def _count(value: str, text: str, name: str) -> int:
    return _whole(value, f"--target {text}: {name}")


def _length(value: str, where: str) -> Length:
    return "data" if value == "data" else _whole(value, where, " or data")


def _whole(value: str, where: str, or_else: str = "") -> int:
    if not (value.isascii() and value.isdecimal()) or int(value) < 1:
        raise UsageError(f"{where}: expected a whole number from 1 up{or_else}, got '{value}'.")
    return int(value)
