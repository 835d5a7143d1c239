"""The ledger of a run: one result for each row (a model in a variant) and target, and what is stated of all of them.

The steps that measure, score, select and package write a ledger each, with those columns of the results that they know;
the results have the same keys, and the report is what `Ledger.joined` makes of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from compress.measure.machine_snapshot import MachineSnapshot
from compress.measure.quality.quality_result import Quality
from compress.measure.resources.footprint import Footprint
from compress.measure.resources.serving_memory import ServingMemory
from compress.measure.result_base import ResultModel, Score
from compress.measure.roofline.roofline import LimitShares, MachineLimits
from compress.measure.timing.latency import Latency
from compress.model_folder.model_info import VariantInfo
from compress.storage.stored_info import up_to

LEDGER_FILE = "ledger.json"

Outcome = Literal["passed", "undecided", "missed"]


RankBy = Literal["p50", "p95", "p99", "size", "end_to_end", "score"]


LATER = ("end_to_end", "memory")
"""Limits that versions before 0.3 do not know."""


class Limits(ResultModel):
    """What a winner may take and weigh."""

    target: str | None = None
    """The title of the target at which it holds; None: at all."""
    p50: float | None = None
    """Milliseconds of the model alone, and so is the next."""
    p95: float | None = None
    end_to_end: float | None = None
    """Milliseconds from text to answer, with the tokenizer."""
    memory: int | None = None
    """Bytes that a process which serves it one by one holds at most, everything in it included."""
    size: int | None = None
    """Bytes of all files that predicting needs."""
    speedup: float | None = None
    """How many times faster than the teacher in PyTorch it must be."""
    smaller: float | None = None
    """How many times smaller than it."""

    @model_serializer(mode="wrap")
    def _omit_unused(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the limits of later versions where they are not given: selections without them stay as they are."""
        return {name: value for name, value in serialize(self).items() if name not in LATER or value is not None}


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


class WinnerComparison(ResultModel):
    """The winner compared with another row on one target."""

    against: str
    """A description of the other row."""
    key: str
    """Its key."""
    speedup: Score | None
    """How many times faster the winner is, from the same rounds of timing."""
    smaller: float | None
    """How many times smaller the winner is, in bytes."""
    kept: float | None
    """The winner's test score over the other's; None for errors and metrics that may be negative."""
    kept_above_floor: float | None = None
    """The same ratio of what exceeds the baseline; None unless the teacher is significantly better than it."""


class Verdict(ResultModel):
    """The winner on one target, and the reason."""

    target: str
    winner: str | None
    """The key of a row."""
    why: str
    trade: Trade | None = None
    """The fastest row just outside the gate, where it is clearly faster than the winner."""
    held_back: tuple[HeldBack, ...] = ()
    """All rows that were timed faster than the winner and did not pass the gate, the fastest first."""
    everywhere: Verdict | None = None
    """The same of the best row that runs wherever the root of a published entry does; None where that is the winner,
    and where there is none."""
    comparisons: tuple[WinnerComparison, ...] = ()
    """With other rows, on test; the report makes them."""
    contradictions: tuple[str, ...] = ()
    """What the winner lost on test although it passed on select, each as a clause; the report finds them."""

    def comparison_with(self, key: str) -> WinnerComparison | None:
        """Return the comparison with the row of this key; None where the winner was not compared with it."""
        return next((each for each in self.comparisons if each.key == key), None)

    @property
    def reason(self) -> str:
        """Why the winner won or nothing did, what test contradicts, and the best trade outside the gate."""
        return "; ".join([self.why, *self.contradictions, *([self.trade.text] if self.trade else [])])


class TargetResult(ResultModel):
    """What is known of one row of the ledger on one target; each step fills in columns of its own."""

    key: str
    """The row's: `student/onnx-int8`."""
    target: str
    """The target's title."""
    select: Quality | None = None
    """Its scores on the select rows; None where it was not scored."""
    test: Quality | None = None
    latency: Latency = Latency(status="not measured")
    shares: LimitShares | None = None
    """The shares of the machine's limits that it uses."""
    serving: tuple[ServingMemory, ...] = ()
    """Memory of a process that serves it on the target's device, one entry a batch size."""
    bytes_total: int | None = None
    """Bytes of all its files."""
    quantized: bool = False
    reference: bool = False
    """The teacher in PyTorch: others are compared with it, and it cannot win."""
    ruled_out: str | None = None
    """Why it does not run where the rules want the winner to run."""
    runs_everywhere: bool = True
    """Whether it runs wherever the root of a published entry does (`runtime_releases.EVERYWHERE`)."""
    gate: GateResult | None = None
    """None before selection, and for the reference, which is not a candidate."""

    @property
    def peak_memory(self) -> int | None:
        """Bytes that serving one by one takes at most."""
        return next((each.peak for each in self.serving if each.batch == 1), None)

    def joined(self, other: TargetResult | None) -> TargetResult:
        """Return this result with the columns that another one of the same row and target has."""
        return (
            self.model_copy(update={name: getattr(other, name) for name in other.model_fields_set}) if other else self
        )


class PackagedFormat(ResultModel):
    """A format that was built for the winner on one target: its scores in its own runtime, and the gate's result."""

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


class GridCell(ResultModel):
    """Timings of all variants at one batch and length; no winner is selected there."""

    batch: int
    length: int | Literal["data"]
    latencies: Mapping[str, Latency]
    """By row key."""


class Ledger(ResultModel):
    """The results of a run, or those of one of its steps."""

    schema_version: Annotated[int, up_to(1)] = 1
    results: tuple[TargetResult, ...] = ()
    grid: Mapping[str, tuple[GridCell, ...]] = {}
    """By target title, timings at further batches and lengths."""
    surroundings: MachineSnapshot | None = None
    """The machine and its settings during timing."""
    limits: tuple[MachineLimits, ...] = ()
    """The machine's limits for every device and number of threads of a target."""
    floor: Quality | None = None
    """Test scores of a simple baseline; `versus_teacher` compares it with the reference."""
    probe: Quality | None = None
    """Test scores of what the teacher was fine-tuned from: the encoder as it is, with the last layer that fits it
    best. None where it was not scored."""
    verdicts: tuple[Verdict, ...] = ()
    packaged: tuple[PackagedFormat, ...] = ()
    """Formats that were built for the winners only."""

    def result(self, key: str | None, title: str | None) -> TargetResult | None:
        """Return the result of a row on a target; None without one."""
        return next((each for each in self.results if each.key == key and each.target == title), None)

    @property
    def winners(self) -> dict[str, str]:
        """By target title, the key of the winner; without targets where nothing won."""
        return {one.target: one.winner for one in self.verdicts if one.winner}

    @property
    def everywhere(self) -> dict[str, str]:
        """By target title, the key of the row that runs everywhere where the winner does not."""
        found = {one.target: one.everywhere.winner for one in self.verdicts if one.everywhere}
        return {title: key for title, key in found.items() if key}

    @classmethod
    def joined(cls, results: Sequence[TargetResult], ledgers: Iterable[Ledger]) -> Ledger:
        """Return these results with the columns of all ledgers, and what each ledger states of the whole run."""
        stated: dict[str, Any] = {}
        for ledger in ledgers:
            stated |= {name: getattr(ledger, name) for name in ledger.model_fields_set}
            results = [each.joined(ledger.result(each.key, each.target)) for each in results]
        return cls(**stated | {"results": tuple(results)})


def write_ledger(folder: Path, ledger: Ledger) -> None:
    """Write ledger.json into ``folder``, with those columns alone that were filled in."""
    written = ledger.model_copy(update={"schema_version": ledger.schema_version})  # which counts it as filled in
    (folder / LEDGER_FILE).write_text(written.model_dump_json(indent=1, exclude_unset=True) + "\n", encoding="utf-8")


def read_ledger(folder: Path) -> Ledger:
    """Read ledger.json from ``folder``."""
    return Ledger.model_validate_json((folder / LEDGER_FILE).read_bytes())
