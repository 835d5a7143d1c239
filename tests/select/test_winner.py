import pytest

from compress.measure.quality.quality_result import ClassScore, Difference, Quality
from compress.measure.timing.latency import Latency
from compress.report.pages.render import render_markdown
from compress.report.report_schema import LedgerRow, Report, Rules
from compress.report.tables.ledger_tables import ledger_table
from compress.report.tables.speed_tables import timing_table
from compress.select.gate import gate
from tests.report.conftest import apply_gates

RULES = Rules(max_drop=0.01, quantize_max_drop=0.005)


def edited(report: Report, key: str, **changes: object) -> Report:
    """The report with fields of one row's result on cpu replaced."""

    def edit(row: LedgerRow) -> LedgerRow:
        if row.key != key:
            return row
        return row.model_copy(update={"targets": {"cpu": row.targets["cpu"].model_copy(update=changes)}})

    return report.model_copy(update={"rows": tuple(map(edit, report.rows))})


def lost(value: float, low: float | None = None) -> Difference:
    return Difference(value=value, low=value if low is None else low, high=value, p_value=0.5, test="mcnemar")


@pytest.fixture
def select(make_report) -> Quality:
    found = make_report().row("pruned/onnx-int8").targets["cpu"].select
    assert found is not None
    return found


def passes(select: Quality, rules: Rules = RULES, quantized: bool = True, **classes: ClassScore) -> bool:
    return gate(rules, select, classes, quantized=quantized).passed


def test_fastest_passing_candidate_wins(make_report):
    report = apply_gates(make_report())
    cpu, cuda = report.verdicts
    assert cpu.winner == "pruned/onnx-int8"
    assert cpu.why.startswith("the fastest of 8 that passed the gate (lost 0.9 points on select, 1 point allowed)")
    assert [found.key for found in cpu.comparisons] == ["teacher/torch-fp32", "teacher/onnx-int8", "student/onnx-int8"]
    against = cpu.comparisons[0]
    assert against.speedup is not None
    assert against.speedup.low < against.speedup.value < against.speedup.high
    assert against.speedup.value == pytest.approx(19, rel=0.05)
    assert against.smaller == pytest.approx(91.3 / 13.9)
    assert against.kept == pytest.approx(0.906 / 0.915)
    assert (cuda.winner, cuda.why) == (None, "not measured: no CUDA here")


def test_the_reference_is_no_candidate(make_report):
    report = apply_gates(make_report())
    reference = report.row("teacher/torch-fp32")
    assert reference.targets["cpu"].gate is None
    assert all(row.targets["cpu"].gate is not None for row in report.rows if row is not reference)


def test_a_drop_of_exactly_what_is_allowed_passes(select):
    assert passes(select.model_copy(update={"versus_teacher": lost(0.90 - 0.91)}))
    assert not passes(select.model_copy(update={"versus_teacher": lost(-0.0101)}))


def test_strict_gate_uses_the_interval(select):
    unsure = select.model_copy(update={"versus_teacher": lost(-0.005, low=-0.02)})
    assert passes(unsure)
    found = gate(RULES.model_copy(update={"strict": True}), unsure, {}, quantized=False)
    assert found.reasons == ("may have lost 2 points (95 % interval) against the teacher, 1 point allowed",)


def test_quantized_candidate_is_also_compared_with_its_source(select):
    worse = select.model_copy(update={"versus_unquantized": lost(-0.006)})
    found = gate(RULES, worse, {}, quantized=True)
    assert found.reasons == ("lost 0.6 points against its own unquantized model, 0.5 points allowed",)
    assert passes(worse, quantized=False)


def test_class_gate_needs_fifty_rows(select):
    asked = RULES.model_copy(update={"max_class_drop": 0.02})
    ours = select.model_copy(update={"per_class": {"good": ClassScore(rows=60, recall=0.80)}})
    assert not passes(ours, asked, good=ClassScore(rows=60, recall=0.90))
    assert passes(ours, asked, good=ClassScore(rows=49, recall=0.90))
    assert passes(ours, RULES, good=ClassScore(rows=60, recall=0.90))


def test_unscored_candidate_does_not_pass(select):
    assert gate(RULES, None, {}, quantized=False).reasons == ("it was not scored on select",)
    unknown = gate(RULES, select.model_copy(update={"versus_teacher": None}), {}, quantized=False)
    assert unknown.reasons == ("it was not compared with the teacher",)
    assert unknown.drop is None


def test_no_variant_passes(make_report):
    report = apply_gates(make_report(rules=Rules(max_drop=0.0, quantize_max_drop=0.0, strict=True)))
    assert report.verdicts[0].winner is None
    assert "no variant passed the gate; the nearest, teacher/onnx-fp32, may have lost" in report.verdicts[0].why
    assert report.verdicts[0].comparisons == ()


def test_within_the_interval_the_smaller_wins(make_report, latency_of):
    report = edited(make_report(), "student/onnx-int8", latency=latency_of(0.609, seed=11))
    verdict = apply_gates(report).verdicts[0]
    assert verdict.winner == "pruned/onnx-int8"
    assert verdict.why.startswith("as fast as student/onnx-int8 and the smaller, of 8")


def test_ranking_by_another_quantile(make_report, latency_of):
    ranked = make_report(rules=RULES.model_copy(update={"rank_by": "p95"}))
    assert apply_gates(ranked).verdicts[0].winner == "pruned/onnx-int8"
    few = latency_of(0.1)
    few = few.model_copy(update={"model": few.model.model_copy(update={"p99": None})})
    by_p99 = edited(make_report(rules=RULES.model_copy(update={"rank_by": "p99"})), "teacher/onnx-int8", latency=few)
    assert apply_gates(by_p99).verdicts[0].winner == "pruned/onnx-int8"


def test_failed_timing_does_not_win_and_is_reported(make_report):
    failed = Latency(status="failed", reason="the process was ended by SIGKILL")
    report = apply_gates(edited(make_report(), "pruned/onnx-int8", latency=failed))
    assert report.verdicts[0].winner == "student/onnx-int8"
    assert "pruned/onnx-int8 was not timed on cpu: the process was ended by SIGKILL." in report.remarks


def test_passing_but_untimed(make_report):
    report = make_report()
    for row in report.rows:
        report = edited(report, row.key, latency=Latency(status="not measured", reason="no such core"))
    report = apply_gates(report)
    assert report.verdicts[0].why == "no variant that passed the gate could be timed: no such core"
    assert [remark for remark in report.remarks if "no such core" in remark] == []  # once is enough
    rows = {(row["model"], row["variant"]): row for row in ledger_table(report, "cpu").rows}
    row = rows["teacher", "onnx-fp32"]
    assert (row["gate"], row["p50"], row["faster"]) == ("passed", "not timed", "not timed")
    assert rows["teacher", "torch-fp32"]["gate"] == "reference"
    assert timing_table(report, "cpu").rows == ()


def test_reasons_that_differ_name_their_rows(make_report):
    report = make_report()
    for row in report.rows:
        reason = "no such core" if row.variant.name == "onnx-int8" else "too small a budget"
        report = edited(report, row.key, latency=Latency(status="not measured", reason=reason))
    why = apply_gates(report).verdicts[0].why
    assert why.count("no such core") == why.count("too small a budget") == 1
    assert "student/onnx-int8" in why


def test_rows_without_timing_for_one_reason_share_a_warning(make_report):
    report = make_report()
    for key in ("teacher/onnx-fp32", "student/onnx-fp32"):
        report = edited(report, key, latency=Latency(status="not measured", reason="no such core"))
    warnings = [remark for remark in apply_gates(report).remarks if "no such core" in remark]
    assert warnings == ["teacher/onnx-fp32, student/onnx-fp32 were not timed on cpu: no such core."]


def test_stage_without_gain_is_reported(make_report, latency_of):
    report = apply_gates(edited(make_report(), "pruned/onnx-fp32", latency=latency_of(2.9, seed=7)))
    (warning,) = [remark for remark in report.remarks if remark.startswith("prune brought no speedup")]
    assert warning.startswith("prune brought no speedup on cpu: pruned/onnx-fp32 is 0.9")
    assert "as fast as student/onnx-fp32" in warning


def test_unmeasured_stages_give_no_warning(make_report):
    assert not [
        remark
        for remark in apply_gates(make_report()).remarks
        if "cuda" in remark and ("no speedup" in remark or "missed the gate" in remark)
    ]


def test_unavailable_variant_is_reported_once(make_report):
    reason = "ONNX Runtime has no such kernels on CUDA"
    lacking = edited(
        make_report(),
        "pruned/onnx-int8",
        latency=Latency(status="not measured", reason=reason),
        select=None,
        test=None,
    )
    warnings = [remark for remark in apply_gates(lacking).remarks if "onnx-int8" in remark and "pruned" in remark]
    assert warnings == [f"pruned/onnx-int8 was not timed on cpu: {reason}."]


def test_stage_that_fails_the_gate_is_reported_as_without_gain(make_report, quality_of):
    worse = quality_of(0.88, 0.913, "select", 0.905)
    report = apply_gates(edited(make_report(), "pruned/onnx-int8", select=worse))
    (warning,) = [remark for remark in report.remarks if ("no speedup" in remark or "missed the gate" in remark)]
    assert warning.startswith("onnx-int8 missed the gate on cpu: pruned/onnx-int8 lost 3.3 points against the teacher")


def test_good_report_has_no_warnings(make_report):
    assert apply_gates(make_report()).remarks == ()


def test_warnings_about_data_and_baseline(make_report, quality_of):
    report = make_report(floor=quality_of(0.90))
    report = report.model_copy(update={"data": report.data.model_copy(update={"duplicates": 12, "skipped": 1234})})
    test = report.row("pruned/onnx-int8").targets["cpu"].test.model_copy(update={"truncated": 0.2})
    remarks = apply_gates(edited(report, "pruned/onnx-int8", test=test)).remarks
    assert remarks == (
        "On cpu the winner is not clearly better than a bag of words (accuracy 90.6 against 90.0).",
        "1,234 rows of the data were skipped because they do not fit the task.",
        "Texts of test that are also in train: 12.",
        "20.0 % of the test rows were truncated at 128 word pieces.",
    )
    without = apply_gates(make_report(floor=None, floor_reason="scikit-learn is not installed")).remarks
    assert without == ("There is no bag of words to compare with: scikit-learn is not installed.",)


def test_truncated_documents_give_a_warning(make_report):
    report = make_report()
    shares = {"test": 0.0, "test's documents": 0.5, "select's documents": 0.6}
    report = report.model_copy(update={"data": report.data.model_copy(update={"truncated": shares})})
    assert apply_gates(report).remarks == ("50.0 % of the searched documents were truncated at 128 word pieces.",)
    page = render_markdown(apply_gates(report))
    assert "truncated: 0.0 % of test, 50.0 % of test's documents, 60.0 % of select's documents, at 128" in page


def test_unstable_timings_give_one_warning_a_target(make_report, latency_of):
    unstable = latency_of(0.61, seed=8).model_copy(update={"status": "unstable", "reason": "spread"})
    remarks = apply_gates(edited(make_report(), "pruned/onnx-int8", latency=unstable)).remarks
    assert len(remarks) == 1
    assert remarks[0].startswith("Timings on cpu are unstable for pruned/onnx-int8")
