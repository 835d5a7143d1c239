"""A format that was built for a winner: its file, its scores in its own runtime, and the gate's verdict on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from compress.measure.quality.quality_result import Quality
from compress.measure.resources.footprint import Footprint
from compress.measure.result_base import ResultModel
from compress.model_info import VariantInfo
from compress.select.ledger import GateResult
from compress.storage.schema_version import up_to

PACKAGED_FILE = "packaged.json"


class PackagedFormat(ResultModel):
    """One format of the winner on one target."""

    target: str
    winner: str
    """The key of the row that won: `pruned/onnx-int8`."""
    format: str
    variant: VariantInfo | None = None
    """What was built; None where that failed."""
    status: Literal["ok", "not scored", "failed", "not built"] = "ok"
    """Not scored: its runtime cannot run here. Not built: what it needs was not made."""
    reason: str | None = None
    """Why it was not built or not scored."""
    footprint: Footprint | None = None
    select: Quality | None = None
    test: Quality | None = None
    gate: GateResult | None = None
    """On select: against the teacher, in INT8 also against its own unquantized model. None where it was not scored."""

    @property
    def is_delivered(self) -> bool:
        """Whether it is put beside the winner: not where it lost more than the gate allows."""
        return self.variant is not None and (self.gate is None or self.gate.may_win)

    @property
    def outcome(self) -> str:
        """`passed`, `undecided`, `missed`, or why there is no verdict: `not scored`."""
        return self.gate.outcome if self.gate else self.status


class Packaged(ResultModel):
    """The content of packaged.json: one format for the winners of all targets."""

    schema_version: Annotated[int, up_to(1)] = 1
    formats: tuple[PackagedFormat, ...] = ()


def read_packaged(folder: Path) -> Packaged:
    """Read packaged.json from ``folder``."""
    return Packaged.model_validate_json((folder / PACKAGED_FILE).read_bytes())
