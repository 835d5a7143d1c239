from math import prod

import pytest

from compress.report.speedup_breakdown import fastest_variant, speedup_stages
from compress.select.ledger import Limits, Rules
from tests.report.conftest import apply_gates, edited


def test_each_stage_changes_one_thing(make_report):
    stages = speedup_stages(make_report(), "pruned/onnx-int8", "cpu")
    assert [stage.name for stage in stages] == ["onnx-fp32", "distill", "prune", "onnx-int8"]
    assert [stage.after.key for stage in stages] == [
        "teacher/onnx-fp32",
        "student/onnx-fp32",
        "pruned/onnx-fp32",
        "pruned/onnx-int8",
    ]
    assert [stage.score_change for stage in stages] == pytest.approx([0.0, -0.003, -0.005, -0.001])
    assert [stage.seconds for stage in stages] == pytest.approx([12.0, 179.0, 179.0, 5.0])


def test_a_stage_costs_the_steps_that_the_row_before_did_not_need(make_report):
    report = make_report()
    names = {"teacher/torch-fp32": (), "teacher/onnx-fp32": ("prune",), "student/onnx-fp32": ("distill",)}
    rows = tuple(row.model_copy(update={"steps": ("finetune", *names.get(row.key, ("none",)))}) for row in report.rows)
    stages = speedup_stages(report.model_copy(update={"rows": rows}), "student/onnx-fp32", "cpu")
    assert [stage.seconds for stage in stages] == [175.0, 180.0]
    same = tuple(row.model_copy(update={"steps": ("finetune",)}) for row in report.rows)
    stages = speedup_stages(report.model_copy(update={"rows": same}), "student/onnx-fp32", "cpu")
    assert [stage.seconds for stage in stages] == [None, None]


def test_factors_multiply_to_the_total(make_report):
    report = apply_gates(make_report())
    total = report.verdicts[0].comparisons[0].speedup
    stages = speedup_stages(report, "pruned/onnx-int8", "cpu")
    assert prod(stage.speedup.value for stage in stages if stage.speedup) == pytest.approx(total.value, rel=0.02)


def test_where_none_passed_the_fastest_variant_within_the_budget_counts(make_report):
    rules = Rules(max_drop=0.0, strict=True, budget=(Limits(size=20_000_000),))
    report = edited(make_report(rules=rules), "student/onnx-fp32", bytes_total=10_000_000)
    report = apply_gates(edited(report, "student/onnx-int8", bytes_total=30_000_000))
    assert not report.with_outcome("passed", "cpu")
    assert fastest_variant(report, "student", "cpu").key == "student/onnx-fp32"


def test_models_are_compared_in_one_variant(make_report):
    stages = speedup_stages(make_report(), "pruned/torch-fp32", "cpu")
    assert [stage.name for stage in stages] == ["distill", "prune"]
    assert speedup_stages(make_report(), "teacher/torch-fp32", "cpu") == []
    assert speedup_stages(make_report(), "nobody", "cpu") == []


def test_failed_rows_are_skipped(make_report):
    report = make_report()
    rows = tuple(
        row.model_copy(update={"status": "failed"}) if row.key == "student/onnx-fp32" else row for row in report.rows
    )
    stages = speedup_stages(report.model_copy(update={"rows": rows}), "pruned/onnx-int8", "cpu")
    assert [stage.before.key for stage in stages][:2] == ["teacher/torch-fp32", "teacher/onnx-fp32"]
    assert [stage.name for stage in stages] == ["onnx-fp32", "prune", "onnx-int8"]


def test_untimed_rows_have_no_factor(make_report):
    assert [stage.speedup for stage in speedup_stages(make_report(), "pruned/onnx-int8", "cuda")] == [None] * 4
    assert [stage.score_change for stage in speedup_stages(make_report(), "pruned/onnx-int8", "cuda")] == [None] * 4


def test_the_fastest_variant_passes_the_gate_if_any_does(make_report, quality_of):
    bad = quality_of(0.8, 0.913, "select", 0.905)
    report = apply_gates(edited(make_report(), "pruned/onnx-int8", select=bad))
    assert fastest_variant(report, "pruned", "cpu").key == "pruned/onnx-fp32"
    assert fastest_variant(report, "pruned", "cuda") is None
