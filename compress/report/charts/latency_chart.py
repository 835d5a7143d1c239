"""The latency table of a goal of speed-up: what attention takes by number of heads, and the FFN by width."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compress import format_numbers as fmt
from compress.prune.latency_table import SpeedupResult
from compress.report.charts.report_charts import NARROW
from compress.report.charts.svg import Frame
from compress.report.charts.xy_chart import Point, Series, xy_chart

HEIGHT = 220
DISC, DIAMOND = 0, 2


def latency_charts(reached: SpeedupResult, colour: int) -> list[str]:
    """Return a chart for heads and one for neurons, on one scale and as wide as a phone; what layers keep is hollow."""
    table, kept = reached.table, reached.attempts[reached.chosen]
    slowest = max([*table.attention.values(), *table.ffn.values()]) or 1.0
    return [
        _chart("heads", table.attention, table.attention_times, kept.heads, slowest, colour),
        _chart("FFN neurons", table.ffn, table.ffn_times, kept.ffn, slowest, colour),
    ]


def _chart(
    units: str,
    times: Mapping[int, float],
    interpolate: Callable[[Sequence[int]], list[float]],
    kept: Sequence[int],
    slowest: float,
    colour: int,
) -> str:
    frame = Frame(NARROW, HEIGHT, (0.0, max(times) * 1.05), (0.0, slowest * 1.1), x_log=False)
    listed = [Point(size, times[size], _tooltip(size, units, times[size]), radius=3.0) for size in sorted(times)]
    series = [Series(units, tuple(listed), colour, DISC)]
    for layer, (size, time) in enumerate(zip(kept, interpolate(kept), strict=True)):
        if size:
            point = Point(size, time, f"layer {layer} keeps {_tooltip(size, units, time)}")
            series.append(Series(f"layer {layer}", (point,), colour, DIAMOND, filled=False))
    return xy_chart(series, frame, units, "ms a layer")


def _tooltip(size: int, units: str, time: float) -> str:
    return f"{size:,} {units}: {fmt.milliseconds(time)}"
