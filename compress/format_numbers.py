"""Numbers as text, the same in the terminal, on pages and in model cards; None is shown as a dash."""

from collections.abc import Callable
from math import floor, log10
from typing import Protocol

from compress.console import duration

ABSENT = "–"
NOT_MEANINGFUL = "not meaningful"

NAMES = {"f1": "F1", "mrr": "MRR", "map": "MAP", "ndcg": "nDCG", "mse": "MSE"}
NAMES |= {name.lower(): name for name in ("Spearman", "Pearson", "Matthews")}


PRECISE = 0.005
"""Half an interval's width over its value below which a fourth digit is meaningful."""


class Interval(Protocol):
    """A value with both ends of its confidence interval."""

    @property
    def value(self) -> float:
        """The value itself."""

    @property
    def low(self) -> float:
        """The lower end."""

    @property
    def high(self) -> float:
        """The upper end."""


def metric(name: str) -> str:
    """A metric's name: `macro F1`, `recall@10`, `exact match`."""
    return " ".join(map(_metric_word, name.replace("_at_", "@").split("_")))


def _metric_word(word: str) -> str:
    name, at, depth = word.partition("@")
    return NAMES.get(name, name) + at + depth


def drop_article(name: str) -> str:
    """A name without its article: `bag of words`."""
    return name.removeprefix("a ").removeprefix("an ").removeprefix("the ")


def score(value: float | None, larger_is_better: bool = True) -> str:
    """A score from 0 to 1 as points (`90.4`); an error as it is (`0.0312`)."""
    if value is None:
        return ABSENT
    return f"{100 * value:.1f}" if larger_is_better else f"{value:.4f}"


def points(value: float | None, larger_is_better: bool = True) -> str:
    """A difference of scores with its unit: `0.3 points`, or the plain number for an error."""
    if value is None:
        return ABSENT
    if not larger_is_better:
        return f"{round(value, 4) + 0.0:.4f}"  # no minus before a zero
    shown = f"{100 * value:.2f}".rstrip("0").rstrip(".")
    shown = "0" if shown in ("-0", "") else shown
    return f"{shown} point{'' if shown == '1' else 's'}"


def signed(value: float | None, larger_is_better: bool = True) -> str:
    """A gain with its sign: `+0.3`, `−1.2` (a true minus, so that columns line up); of an error its fall: `−0.0120`."""
    if value is None:
        return ABSENT
    shown = f"{100 * value:+.1f}" if larger_is_better else f"{-value:+.4f}"
    return ("±" + shown[1:] if float(shown) == 0 else shown).replace("-", "−")


def interval(interval: Interval | None, larger_is_better: bool = True) -> str:
    """Both ends of a score's confidence interval: `88.9 to 92.0`."""
    return span(interval, lambda end: score(end, larger_is_better))


def span(interval: Interval | None, format_end: Callable[[float], str]) -> str:
    """Both ends of an interval in the format of the value: `4.1× to 4.4×`."""
    return ABSENT if interval is None else f"{format_end(interval.low)} to {format_end(interval.high)}"


def with_interval(score: Interval | None) -> str:
    """A value and both ends, with the digits that the interval's width makes meaningful: `2.31 [2.25, 2.38]`."""
    if score is None:
        return ABSENT
    digits = 4 if (score.high - score.low) / 2 < PRECISE * score.value else 3
    decimals = max(0, digits - 1 - floor(log10(score.value))) if score.value > 0 else digits
    value, low, high = (f"{number:.{decimals}f}" for number in (score.value, score.low, score.high))
    return f"{value} [{low}, {high}]"


def figure(value: float | None, unit: float = 1.0) -> str:
    """A number in ``unit`` with three digits, of which more would be noise: `1.23`, `0.0123`, `1234`."""
    if value is None:
        return ABSENT
    decimals = 2 - floor(log10(abs(value / unit))) if value else 0
    return f"{round(value / unit, decimals):.4g}" if decimals > 0 else f"{value / unit:.0f}"


def ratio(value: float | None) -> str:
    """A factor with three digits: `0.97×`, `4.21×`, `19.2×`, `104×`."""
    if value is None:
        return ABSENT
    return f"{value:.0f}×" if value >= 99.95 else f"{value:.1f}×" if value >= 9.995 else f"{value:.2f}×"


def milliseconds(value: float | None) -> str:
    """A duration of a call: `0.612 ms`, `11.6 ms`, `1,204 ms`."""
    if value is None:
        return ABSENT
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms" if value >= 0.01 else f"{value:.4f} ms"


def size(count: float | None) -> str:
    """Bytes in decimal units, as download sizes are given: `13.9 MB`."""
    if count is None:
        return ABSENT
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}" if count < 100 * scale else f"{count / scale:.0f} {unit}"
    return f"{count:.0f} B"


def count(value: float | None) -> str:
    """A large number in short: `22.7 M`, `1,821`."""
    if value is None:
        return ABSENT
    return f"{value / 1e6:.1f} M" if value >= 1e6 else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Rows a second: `1,821`, `0.42`."""
    return count(value) if value is None or value >= 10 else f"{value:.2g}"


def seconds(value: float | None) -> str:
    """A duration of a step: `< 0.1 s`, `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if value is None:
        return ABSENT
    return "< 0.1 s" if value < 0.05 else f"{value:.1f} s" if value < 9.95 else duration(value)


def percent(value: float | None) -> str:
    """A share: `98.7 %`."""
    return ABSENT if value is None else f"{100 * value:.1f} %"


def money(value: float | None) -> str:
    """An amount with three digits, or to a hundredth: `0.0123`, `4.56`, `1,204.00`."""
    if value is None:
        return ABSENT
    return f"{value:,.2f}" if value >= 1 else f"{value:.3g}"


def p_value(value: float | None) -> str:
    """A p-value: `0.04`, `< 0.001`."""
    if value is None:
        return ABSENT
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def flop(value: float | None) -> str:
    """Operations of one example: `2.41 GFLOP`."""
    return ABSENT if value is None else f"{_thousands(value)}FLOP"


def op_rate(value: float | None) -> str:
    """Operations a second: `143 Gop/s`."""
    return ABSENT if value is None else f"{_thousands(value)}op/s"


def bandwidth(value: float | None) -> str:
    """Bytes a second: `11.2 GB/s`."""
    return ABSENT if value is None else f"{size(value)}/s"


def energy(value: float | None) -> str:
    """Energy of one example: `3.1 mJ`, `0.42 J`."""
    if value is None:
        return ABSENT
    return f"{value:.3g} J" if value >= 0.1 else f"{1e3 * value:.3g} mJ"


def _thousands(value: float) -> str:
    """Three digits and a unit's first letter."""
    for letter, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * scale:
            return f"{value / scale:.3g} {letter}"
    return f"{value:.3g} "
