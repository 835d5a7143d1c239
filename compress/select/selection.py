"""What selection reads and writes: the rules of a recipe, the candidates on a target, and select.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from compress.measure.quality.quality_result import Quality
from compress.measure.result_base import ResultModel
from compress.measure.timing.latency import Latency
from compress.storage.schema_version import up_to

SELECT_FILE = "select.json"


class Rules(ResultModel):
    """The quality loss that a recipe allows, and what it ranks by."""

    max_drop: float
    strict: bool = False
    max_class_drop: float | None = None
    quantize_max_drop: float | None = None
    rank_by: Literal["p50", "p95", "p99"] = "p50"


@dataclass(frozen=True)
class Candidate:
    """One model in one variant on one target."""

    key: str
    """`student/onnx-int8`."""
    select: Quality | None
    """Its scores on the select rows; None where it was not scored."""
    latency: Latency
    bytes_total: int | None
    quantized: bool = False
    reference: bool = False
    """The teacher in PyTorch: others are compared with it, and it cannot win."""


class GateResult(ResultModel):
    """Whether a row may win on a target, and how much of the allowed loss it used, on the select rows."""

    passed: bool
    drop: float | None
    """Loss against the teacher (below zero: a gain)."""
    allowed: float
    reasons: tuple[str, ...] = ()
    """Why it did not pass."""


class TargetSelection(ResultModel):
    """The result on one target."""

    target: str
    winner: str | None
    """The key of a row."""
    why: str
    gates: Mapping[str, GateResult] = {}
    """By row key, for every candidate."""


class Selection(ResultModel):
    """The content of select.json."""

    schema_version: Annotated[int, up_to(1)] = 1
    targets: tuple[TargetSelection, ...] = ()

    @property
    def winners(self) -> dict[str, str]:
        """By target title, the key of the winner; without targets where nothing won."""
        return {one.target: one.winner for one in self.targets if one.winner}


def read_selection(folder: Path) -> Selection:
    """Read select.json from ``folder``."""
    return Selection.model_validate_json((folder / SELECT_FILE).read_bytes())
