"""Building blocks of all charts: SVG elements, a frame that maps values to pixels, axes with round ticks, markers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

Corners = tuple[tuple[float, float], ...]

MARKERS: tuple[Corners, ...] = (
    (),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    ((0, -1.2), (1.2, 1), (-1.2, 1)),
    ((0, 1.2), (1.2, -1), (-1.2, -1)),
    (
        *((-0.45, -1.25), (0.45, -1.25), (0.45, -0.45), (1.25, -0.45), (1.25, 0.45), (0.45, 0.45)),
        *((0.45, 1.25), (-0.45, 1.25), (-0.45, 0.45), (-1.25, 0.45), (-1.25, -0.45), (-0.45, -0.45)),
    ),
    ((1.2, 0), (-1, 1.2), (-1, -1.2)),
    ((-1.2, 0), (1, 1.2), (1, -1.2)),
    ((-0.7, -1.25), (0.7, -1.25), (0.7, 1.25), (-0.7, 1.25)),
    ((-1.25, -0.7), (1.25, -0.7), (1.25, 0.7), (-1.25, 0.7)),
    ((-1.1, -1.1), (1.1, -1.1), (0, 0), (1.1, 1.1), (-1.1, 1.1), (0, 0)),
)
"""Corners of markers of radius 1, of about the same area: disc, square, diamond, triangles up and down, cross,
triangles to the right and left, bars, and an hourglass. Further ones are stars."""
FIRST_STAR = 4
"""The points of the first star; each further one has one more."""


def element(tag: str, *content: str, **attributes: float | str) -> str:
    """Return an SVG element around ``content``, which is markup; ``class_`` and ``text_anchor`` become attributes."""
    parts = (f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"' for name, value in attributes.items())
    return f"<{tag}{''.join(parts)}>{''.join(content)}</{tag}>"


def text(x: float, y: float, label: str, classes: str, anchor: str = "start") -> str:
    """Return a text element; its label is escaped."""
    return element("text", escape(label), class_=classes, x=x, y=y, text_anchor=anchor)


def rect(x: float, y: float, width: float, height: float, classes: str, **attributes: float | str) -> str:
    """Return a rectangle."""
    return element("rect", class_=classes, x=x, y=y, width=max(0.0, width), height=max(0.0, height), **attributes)


def line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    """Return a line."""
    return element("line", class_=classes, x1=x1, y1=y1, x2=x2, y2=y2)


def with_tooltip(tooltip: str, *content: str, name: str = "") -> str:
    """Group elements and show ``tooltip`` when they are pointed at; ``name`` is what the page's script finds it by."""
    return element("g", element("title", escape(tooltip)), *content, **{"data-name": name} if name else {})


def svg(content: Iterable[str], width: float, height: float, title: str) -> str:
    """Return the drawing, with a title for screen readers."""
    view = f"0 0 {width:.0f} {height:.0f}"
    namespace = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": title}
    return element("svg", *content, width=round(width), height=round(height), viewBox=view, **namespace)


def marker(kind: int, x: float, y: float, radius: float, classes: str) -> str:
    """Return the marker with this number; no two numbers have the same shape."""
    corners = MARKERS[kind] if kind < len(MARKERS) else _star(FIRST_STAR + kind - len(MARKERS))
    if not corners:
        return element("circle", class_=classes, cx=x, cy=y, r=radius)
    points = " ".join(f"{x + radius * right:.1f},{y + radius * down:.1f}" for right, down in corners)
    return element("polygon", class_=classes, points=points)


@dataclass(frozen=True)
class Frame:
    """Maps values to pixels inside the axes of a chart."""

    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    x_log: bool = True
    left: float = 48.0
    top: float = 24.0

    @property
    def right(self) -> float:
        """The right edge in pixels."""
        return self.width - 12

    @property
    def bottom(self) -> float:
        """The lower edge in pixels."""
        return self.height - 44

    def x(self, value: float) -> float:
        """The horizontal position of a value."""
        return self.left + (self.right - self.left) * _fraction(value, self.x_range, log=self.x_log)

    def y(self, value: float) -> float:
        """The vertical position of a value."""
        return self.bottom - (self.bottom - self.top) * _fraction(value, self.y_range, log=False)

    def axes(self, x_label: str, y_label: str) -> Iterable[str]:
        """Grid lines at round values, the horizontal axis and both labels."""
        for tick in ticks(*self.x_range, log=self.x_log, limit=int((self.right - self.left) / 48)):
            yield line(self.x(tick), self.top, self.x(tick), self.bottom, "grid")
            yield text(self.x(tick), self.bottom + 16, f"{tick:,g}", "tick", "middle")
        for tick in ticks(*self.y_range, log=False, limit=6):
            yield line(self.left, self.y(tick), self.right, self.y(tick), "grid")
            yield text(self.left - 8, self.y(tick) + 4, f"{tick:,g}", "tick", "end")
        yield line(self.left, self.bottom, self.right, self.bottom, "axis")
        yield text(self.right, self.height - 8, x_label, "axis-label", "end")
        yield text(0, 12, y_label, "axis-label")


def ticks(low: float, high: float, *, log: bool, limit: int) -> list[float]:
    """Return at most about ``limit`` round values; a logarithmic axis of less than a decade gets linear ones."""
    if log:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            values = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
            if 2 < len(values) <= limit:
                return values
    rough = (high - low) / limit
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * factor for factor in (1, 2, 5, 10) if scale * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _star(points: int) -> Corners:
    """Return the corners of a star, the first one up."""
    turns = [math.pi * corner / points for corner in range(2 * points)]
    lengths = (1.4, 0.6)
    return tuple(
        (lengths[corner % 2] * math.sin(turn), -lengths[corner % 2] * math.cos(turn))
        for corner, turn in enumerate(turns)
    )


def _attribute(value: float | str) -> str:
    return f"{value:.1f}" if isinstance(value, float) else escape(str(value))


def _fraction(value: float, ends: tuple[float, float], *, log: bool) -> float:
    low, high = (math.log(end) for end in ends) if log else ends
    return ((math.log(value) if log else value) - low) / (high - low)
