"""The exit code of a run without a winner: missed gate, or nothing timed."""

from pathlib import Path

import pytest

from compress.errors import CompressError, GateMissed
from compress.measure.timing.latency import Latency
from compress.model_folder.model_info import VariantInfo
from compress.pipeline.execute import Outcome
from compress.pipeline.run import Result
from compress.report.report_schema import LedgerRow, Report
from compress.report.run_facts import TargetFacts
from compress.report.winner_summary import remedy
from compress.select.ledger import GateResult, TargetResult, Verdict
from compress.select.ledger import Outcome as GateOutcome

UNTIMED = Latency(status="not measured", reason="the budget is too small")
VARIANT = VariantInfo(name="onnx-fp32", format="onnx", precision="fp32", runtime="onnxruntime")


def ended(outcome: GateOutcome, drop: float) -> Result:
    """A run without a winner on cpu, where nothing was timed."""
    gate = GateResult(outcome=outcome, drop=drop, allowed=0.01, excess=drop - 0.01)
    row = LedgerRow(model="student", step="distill", variant=VARIANT)
    result = TargetResult(key=row.key, target="cpu", latency=UNTIMED, gate=gate)
    cpu = TargetFacts(title="cpu", device="cpu", threads=1, batch=1, length="data")
    verdict = Verdict(target="cpu", winner=None, why="the reason why")
    report = Report.model_construct(
        rows=(row,), results=(result,), targets=(cpu,), verdicts=(verdict,), recipe={"budget": []}
    )
    return Result(Path("runs/my"), Outcome(), report)


@pytest.mark.parametrize("outcome", ["passed", "undecided"])
def test_models_that_may_win_and_could_not_be_timed_miss_no_gate(outcome: GateOutcome) -> None:
    with pytest.raises(CompressError, match="no winner: cpu: the reason why") as raised:
        ended(outcome, 0.0).raise_for_gate()
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(("outcome", "drop"), [("missed", 0.5), ("undecided", 0.02)])
def test_models_that_may_not_win_miss_the_gate(outcome: GateOutcome, drop: float) -> None:
    with pytest.raises(GateMissed, match="no winner: cpu: the reason why") as raised:
        ended(outcome, drop).raise_for_gate()
    assert raised.value.exit_code == 3


LARGE = GateResult(outcome="passed", drop=0.0, allowed=0.01, ruled_out=("has 6 MB, 5 MB allowed",))
BAD = GateResult(outcome="missed", drop=0.5, allowed=0.01)
BOTH = LARGE.model_copy(update={"outcome": "missed"})


@pytest.mark.parametrize(
    ("gates", "hint"),
    [
        ([LARGE, BOTH], "smaller ones"),
        ([BOTH], ""),
        ([BAD], "texts without labels"),
        ([BAD, LARGE], "what passes exceeds the budget, and what is within loses too much: texts without labels"),
    ],
)
def test_the_remedy_is_about_what_keeps_rows_from_winning(gates: list[GateResult], hint: str) -> None:
    found = remedy(gates, "smaller ones")
    assert found.startswith(hint)
    assert bool(found) is bool(hint)
    assert "budget" not in remedy(gates, "")


def test_a_missed_gate_hints_at_it() -> None:
    with pytest.raises(GateMissed) as raised:
        ended("missed", 0.5).raise_for_gate("smaller ones")
    assert str(raised.value.hint).startswith("texts without labels")
    assert str(raised.value.hint).endswith("; everything measured is in runs/my/report.html")
