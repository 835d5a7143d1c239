"""What selection reads and writes: the rules of a recipe, the candidates on a target, and select.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from compress.measure.quality.quality_result import Quality
from compress.measure.result_base import ResultModel
from compress.measure.timing.latency import Latency
from compress.storage.schema_version import up_to

SELECT_FILE = "select.json"

Outcome = Literal["passed", "undecided", "missed"]


RankBy = Literal["p50", "p95", "p99", "size"]


class Limits(ResultModel):
    """What a winner may take and weigh."""

    target: str | None = None
    """The title of the target at which it holds; None: at all."""
    p50: float | None = None
    """Milliseconds of the model alone, and so is the next."""
    p95: float | None = None
    size: int | None = None
    """Bytes of all files that predicting needs."""
    speedup: float | None = None
    """How many times faster than the teacher in PyTorch it must be."""
    smaller: float | None = None
    """How many times smaller than it."""


class Rules(ResultModel):
    """The quality loss that a recipe allows, its budget, and what it ranks by."""

    max_drop: float
    strict: bool = False
    max_class_drop: float | None = None
    quantize_max_drop: float | None = None
    rank_by: RankBy = "p50"
    runs_in: tuple[str, ...] = ()
    """Runtimes in which the winner must run, beside its own."""
    budget: tuple[Limits, ...] = ()

    @model_serializer(mode="wrap")
    def _omit_unused(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what rules nothing out: results of versions without these rules are not made again."""
        return {name: value for name, value in serialize(self).items() if name not in ("runs_in", "budget") or value}


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
    ruled_out: str | None = None
    """Why it does not run where the rules want the winner to run."""
    runs_everywhere: bool = True
    """Whether it runs wherever the root of a published entry does (`runtime_releases.EVERYWHERE`)."""


class GateResult(ResultModel):
    """Whether a row may win on a target, and how much of the allowed loss it used, on the select rows."""

    outcome: Outcome
    """Whether the loss is within the allowed one; undecided where the rows cannot tell."""
    drop: float | None
    """Loss against the teacher (below zero: a gain)."""
    allowed: float
    excess: float | None = None
    """The most that any of its losses exceeds what is allowed by (below zero: all are within); None if unknown."""
    more_rows: int | None = None
    """If undecided: about how many more select rows would decide; None where it is more than the set could have."""
    reasons: tuple[str, ...] = ()
    """Why it did not pass."""
    ruled_out: tuple[str, ...] = ()
    """Why it cannot win whatever it lost: where it does not run, and what it exceeds of the budget."""

    @model_validator(mode="before")
    @classmethod
    def _read_passed(cls, value: Any) -> Any:
        """Read `passed`, which schema version 1 of select.json and 2 of report.json have."""
        if isinstance(value, Mapping) and "passed" in value and "outcome" not in value:
            return {**value, "outcome": "passed" if value["passed"] else "missed"}
        return value

    @property
    def state(self) -> str:
        """`ruled out`, or its outcome."""
        return "ruled out" if self.ruled_out else self.outcome

    @property
    def why(self) -> str:
        """Why it is ruled out or did not pass; empty where it passed."""
        return "; ".join((*self.ruled_out, *self.reasons))

    @property
    def may_win(self) -> bool:
        """Whether it passed, or is undecided with losses that are as measured within what is allowed."""
        if self.ruled_out:
            return False
        within = self.excess is not None and self.excess <= 0
        return self.outcome == "passed" or (self.outcome == "undecided" and within)


class Trade(ResultModel):
    """A row just outside the gate that is clearly faster than the winner."""

    key: str
    text: str
    """Its speed, and what it lost."""


class HeldBack(ResultModel):
    """A row that was faster than the winner, and did not pass the gate."""

    key: str
    text: str
    """Its time, the outcome and the reasons."""


class TargetSelection(ResultModel):
    """The result on one target."""

    target: str
    winner: str | None
    """The key of a row."""
    why: str
    gates: Mapping[str, GateResult] = {}
    """By row key, for every candidate."""
    trade: Trade | None = None
    """The fastest row that loses little more than allowed, where it is clearly faster than the winner."""
    held_back: tuple[HeldBack, ...] = ()
    """All rows that were timed faster than the winner and did not pass the gate, the fastest first."""
    everywhere: str | None = None
    """The key of the best row that runs wherever the root of a published entry does: often the winner's own. None where
    no row that may win does, and in results of earlier versions."""


class Selection(ResultModel):
    """The content of select.json."""

    schema_version: Annotated[int, up_to(2)] = 2
    """2: the gate has three outcomes; 1 has `passed`."""
    targets: tuple[TargetSelection, ...] = ()

    @property
    def winners(self) -> dict[str, str]:
        """By target title, the key of the winner; without targets where nothing won."""
        return {one.target: one.winner for one in self.targets if one.winner}

    @property
    def everywhere(self) -> dict[str, str]:
        """By target title, the key of the row that runs everywhere where the winner does not."""
        return {one.target: one.everywhere for one in self.targets if one.everywhere and one.everywhere != one.winner}


def read_selection(folder: Path) -> Selection:
    """Read select.json from ``folder``."""
    return Selection.model_validate_json((folder / SELECT_FILE).read_bytes())
