"""Where the name of a mark goes: beside it, where it meets nothing else."""

from __future__ import annotations

from compress.report.charts.svg import LETTER, Frame, text

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def placed_label(x: float, y: float, label: str, frame: Frame, taken: list[Box]) -> str:
    """The label on the first side of its mark where it meets nothing in ``taken`` (which it joins) and stays inside."""
    size = len(label) * LETTER
    sides = [
        (x + 16, y + 4, "start"),
        (x - 16, y + 4, "end"),
        (x, y - 18, "middle"),
        (x, y + 26, "middle"),
        (x + 14, y - 14, "start"),
        (x - 14, y - 14, "end"),
        (x + 14, y + 22, "start"),
        (x - 14, y + 22, "end"),
    ]

    def room(side: tuple[float, float, str]) -> Box:
        left = side[0] - {"start": 0.0, "middle": size / 2, "end": size}[side[2]]
        return (left, side[1] - 11, left + size, side[1] + 3)

    def free(side: tuple[float, float, str]) -> bool:
        left, top, right, bottom = room(side)
        inside = left >= frame.left and right <= frame.right and top >= frame.top and bottom <= frame.bottom
        return inside and not any(_meet(room(side), other) for other in taken)

    chosen = next(filter(free, sides), sides[0] if x < (frame.left + frame.right) / 2 else sides[1])
    taken.append(room(chosen))
    return text(chosen[0], chosen[1], label, "label strong", chosen[2])


def around(x: float, y: float, reach: float) -> Box:
    """The room that a mark takes."""
    return (x - reach, y - reach, x + reach, y + reach)


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
