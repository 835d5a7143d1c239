"""What every chart is made of: a frame that maps values to pixels, axes with round ticks, marks and text as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

LETTER = 7.0
"""Width of an average letter of a bold label, at 12 pixels."""
GLYPHS = ("disc", "square", "diamond", "triangle")
OUTLINES: dict[str, tuple[float, list[tuple[float, float]]]] = {
    "square": (0.9, [(-1, -1), (1, -1), (1, 1), (-1, 1)]),
    "diamond": (1.25, [(0, -1), (1, 0), (0, 1), (-1, 0)]),
    "triangle": (1.2, [(0, -1), (1, 0.8), (-1, 0.8)]),
}
"""Half the width, and the corners in it, of every mark but the disc."""


@dataclass(frozen=True)
class Frame:
    """Maps values to pixels inside the axes."""

    left: float
    right: float
    top: float
    bottom: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    x_log: bool = True
    y_log: bool = False

    def x(self, value: float) -> float:
        """The horizontal place of a value."""
        return self.left + (self.right - self.left) * _share(value, self.x_range, self.x_log)

    def y(self, value: float) -> float:
        """The vertical place of a value."""
        return self.bottom - (self.bottom - self.top) * _share(value, self.y_range, self.y_log)


def grid(frame: Frame, axes: tuple[str, str], height: int) -> Iterable[str]:
    """Round lines behind everything, the horizontal axis, and what both axes say."""
    room = int((frame.right - frame.left) / 48)
    for tick in _ticks(frame.x_range, frame.x_log, room):
        x = frame.x(tick)
        yield f'<line class="grid" {ends(x, frame.top, x, frame.bottom)}/>'
        yield text(x, frame.bottom + 16, f"{tick:,g}", "tick", "middle")
    for tick in _ticks(frame.y_range, frame.y_log, 6):
        y = frame.y(tick)
        yield f'<line class="grid" {ends(frame.left, y, frame.right, y)}/>'
        yield text(frame.left - 8, y + 4, f"{tick:,g}", "tick", "end")
    yield f'<line class="axis" {ends(frame.left, frame.bottom, frame.right, frame.bottom)}/>'
    yield text(frame.right, height - 8, axes[0], "axis-label", "end")
    yield text(0, 12, axes[1], "axis-label")


def glyph(kind: int, x: float, y: float, size: float, classes: str) -> str:
    """A mark of one of four shapes, of about the same area."""
    name = GLYPHS[kind % len(GLYPHS)]
    if name == "disc":
        return f'<circle class="{classes}" cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}"/>'
    side, corners = OUTLINES[name][0] * size, OUTLINES[name][1]
    path = " ".join(f"{x + side * right:.1f},{y + side * down:.1f}" for right, down in corners)
    return f'<polygon class="{classes}" points="{path}"/>'


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values of a logarithmic axis: 1, 2, 5 and their tenfolds, or fewer where those are too many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) <= most:
            break
    return ticks


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values of a plain axis."""
    rough = (high - low) / most
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * factor for factor in (1, 2, 5, 10) if scale * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    return [place * step for place in range(first, math.floor(high / step + 1e-9) + 1)]


def box(x: float, y: float, width: float, height: float) -> str:
    """The attributes of a rectangle."""
    return f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(0.0, height):.1f}"'


def ends(x1: float, y1: float, x2: float, y2: float) -> str:
    """The attributes of a line."""
    return f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'


def text(x: float, y: float, said: str, classes: str, anchor: str = "start") -> str:
    """Letters at a place; whatever they say cannot break the drawing."""
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}</text>'


def svg(content: str, width: int, height: float, title: str) -> str:
    """The whole drawing, named for those who cannot see it."""
    size = f'width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">{content}</svg>'


def _ticks(ends: tuple[float, float], log: bool, most: int) -> list[float]:
    found = log_ticks(*ends, most=most) if log else []
    return found if len(found) > 2 else linear_ticks(*ends, most=most)  # less than a decade has few tenfolds in it


def _share(value: float, ends: tuple[float, float], log: bool) -> float:
    low, high = (math.log(end) for end in ends) if log else ends
    return ((math.log(value) if log else value) - low) / (high - low)
