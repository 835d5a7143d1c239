"""latency_table.json: how long the parts of an encoder take on one machine, by number of heads and FFN width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from compress.errors import ModelError, first_error
from compress.model_folder.model_info import ShapeInfo
from compress.quantize import QUANTIZERS
from compress.recipe.prune_schema import PruneTo
from compress.storage.stored_info import Info, up_to

TABLE_FILE = "latency_table.json"
LATENCY_STEP = "latency"
"""The step that measures it."""

LATENCY_VARIANTS: Mapping[str, str | None] = {"onnx-fp32": None} | {
    variant.name: variant.graph_builder for variant in QUANTIZERS.values() if variant.graph_builder
}
"""The variants in which latency is measured, with the `module:function` that makes the graph from the exported one."""

TOLERANCE = 0.1
"""How much a measured speed-up may differ from the goal."""

Count = Annotated[int, Field(ge=1)]
Milliseconds = Annotated[float, Field(ge=0.0, lt=1e9, allow_inf_nan=False)]
Times = Annotated[Mapping[Count, Milliseconds], Field(min_length=1)]


class LatencyTable(Info):
    """The latency of a model with given heads and FFN widths, as the sum of what each layer's parts take.

    Between the sizes listed, times are interpolated.
    """

    schema_version: Annotated[int, up_to(1)] = 1
    variant: str
    """The variant that was timed: `onnx-int8`."""
    processor: str
    device: Literal["cpu"] = "cpu"
    threads: Count
    batch: Count
    length: Count
    """Word pieces of every input."""
    family: str
    hidden: Count
    head_size: Count
    layers: Count
    session: Mapping[str, Any] = {}
    """Session options, the fastest ones on this machine."""
    fixed: Annotated[Milliseconds, Field(gt=0.0)]
    """Milliseconds of a model in which every layer has the smallest sizes listed."""
    attention: Times
    """By number of heads, the milliseconds that one layer's attention takes beyond that."""
    ffn: Times
    """By width, the milliseconds that one layer's FFN takes beyond that."""
    layer: Milliseconds | None = None
    """Milliseconds that a layer of the smallest sizes takes, which dropping it saves. None in models of one layer, and
    in tables of earlier versions: by these no layer is dropped."""

    @model_validator(mode="after")
    def _check_smallest(self) -> LatencyTable:
        if self.fixed <= (self.layers - 1) * (self.layer or 0.0):
            raise ValueError("`layer`, of all layers but one, is not less than `fixed`, the time of the whole model")
        return self

    def attention_times(self, heads: Sequence[int]) -> list[float]:
        """Return the milliseconds of a layer's attention with each number of heads."""
        return _interpolated(self.attention, heads)

    def ffn_times(self, widths: Sequence[int]) -> list[float]:
        """Return the milliseconds of a layer's FFN with each width."""
        return _interpolated(self.ffn, widths)

    def model_time(self, heads: Sequence[int], ffn: Sequence[int]) -> float:
        """Return the milliseconds of a model whose layers have these heads and FFN widths, 0 where one is dropped."""
        kept = list(filter(None, heads)), list(filter(None, ffn))
        saved = (len(heads) - len(kept[0])) * (self.layer or 0.0)
        return self.fixed - saved + sum(self.attention_times(kept[0])) + sum(self.ffn_times(kept[1]))

    def largest_speedup(self, shape: ShapeInfo, round_to: int) -> float:
        """Return how many times faster a model of this shape becomes at most, with widths of ``round_to`` or more."""
        widths = [min(round_to, width) for width in shape.ffn]
        if self.layer is not None:  # all layers but one can be dropped
            widths = [min(widths)] + [0] * (len(widths) - 1)
        heads = [int(width > 0) for width in widths]
        return self.model_time(shape.heads, shape.ffn) / self.model_time(heads, widths)

    def mismatch(self, shape: ShapeInfo) -> str | None:
        """Return why the table does not describe models of this shape; None where it does."""
        named = {"family": shape.family, "hidden": shape.hidden, "layers": shape.layers, "head_size": shape.head_size}
        for name, value in named.items():
            if value is not None and value != getattr(self, name):
                title = name.replace("_", " ")
                return f"it was measured for {title} {getattr(self, name)}, and the model has {title} {value}"
        largest = {
            "number of heads": (max(shape.heads), max(self.attention)),
            "FFN width": (max(shape.ffn), max(self.ffn)),
        }
        for title, (needed, listed) in largest.items():
            if needed > listed:
                return f"{title} is listed up to {listed}, and the model has {needed}"
        return None


class SpeedupAttempt(Info):
    """A choice of what stays, and how many times faster it makes the model."""

    heads: tuple[int, ...]
    """By layer, how many stay."""
    ffn: tuple[int, ...]
    """By layer, the neurons that stay."""
    predicted: float
    """By the latency table."""
    measured: float | None = None
    """By timing the exported model; None with a table from elsewhere."""


class SpeedupResult(Info):
    """How a cut reached its goal of speed-up. Timings differ from run to run: they are no part of the cut model."""

    goal: float
    table: LatencyTable
    attempts: tuple[SpeedupAttempt, ...]
    chosen: int
    """The number of the attempt that became the model, from 0."""


def wanted_speedup(to: PruneTo, table: LatencyTable, shape: ShapeInfo) -> float:
    """Return how many times faster a model of this shape is to become: its goal, or what its goal of time means here.

    1 or less where it takes no longer than that already.
    """
    if to.p50 is None:
        assert to.speedup is not None  # a goal of latency has one of both
        return to.speedup
    return round(table.model_time(shape.heads, shape.ffn) / to.p50, 2)


def unreachable(table: LatencyTable, shape: ShapeInfo, to: PruneTo, round_to: int) -> str | None:
    """Return why a model of this shape cannot reach a goal of latency within `TOLERANCE`; None where it can."""
    largest, speedup = table.largest_speedup(shape, round_to), wanted_speedup(to, table, shape)
    whole = table.model_time(shape.heads, shape.ffn)
    if speedup <= 1:
        return (
            f"the model takes {whole:.3g} ms before pruning by the latency table ({table.variant}, {table.length} word"
            f" pieces), which is within {to.p50:g} ms: leave out prune, or give a shorter time."
        )
    if speedup <= largest * (1 + TOLERANCE):
        return None
    stays = "every layer keeps at least" if table.layer is None else "at least one layer stays, with"
    least = f"{stays} one head and {round_to} neurons (`round_to`), so the model"
    if to.p50 is None:
        wish, reached, other = f"{speedup:g}", f"becomes at most {largest:.1f} times faster", "smaller speedup"
    else:
        wish, reached, other = f"{to.p50:g} ms", f"takes at least {whole / largest:.3g} ms", "longer time"
    return f"{wish} cannot be reached: {least} {reached}. Give a {other}, or prune a student of fewer layers."


def read_table(path: Path) -> LatencyTable:
    """Read a latency table, or say why it cannot be read."""
    try:
        return LatencyTable.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise ModelError(
            f"{path} cannot be read as a latency table: {first_error(error)}.",
            hint="compress run RECIPE --until latency writes one, on the machine that it is for",
        ) from error


def _interpolated(times: Mapping[int, float], sizes: Sequence[int]) -> list[float]:
    known = sorted(times)
    values: list[float] = np.interp(sizes, known, [times[size] for size in known]).tolist()
    return values
