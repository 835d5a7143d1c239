from math import prod

import pytest

from compress.report.speedup_breakdown import fastest_variant, speedup_stages
from compress.select.select_winner import judged


def test_each_link_changes_one_thing(make_report):
    links = speedup_stages(make_report(), "pruned/onnx-int8", "cpu")
    assert [link.stage for link in links] == ["onnx-fp32", "distill", "prune", "onnx-int8"]
    assert [link.after.key for link in links] == [
        "teacher/onnx-fp32",
        "student/onnx-fp32",
        "pruned/onnx-fp32",
        "pruned/onnx-int8",
    ]
    assert [link.gained for link in links] == pytest.approx([0.0, -0.003, -0.005, -0.001])
    assert [link.seconds for link in links] == pytest.approx([12.0, 179.0, 179.0, 5.0])


def test_factors_multiply_to_the_whole(make_report):
    report = judged(make_report())
    whole = report.verdicts[0].comparisons[0].speedup
    links = speedup_stages(report, "pruned/onnx-int8", "cpu")
    assert prod(link.speedup.value for link in links if link.speedup) == pytest.approx(whole.value, rel=0.02)


def test_a_chain_stays_within_its_variant(make_report):
    links = speedup_stages(make_report(), "pruned/torch-fp32", "cpu")
    assert [link.stage for link in links] == ["distill", "prune"]
    assert speedup_stages(make_report(), "teacher/torch-fp32", "cpu") == []
    assert speedup_stages(make_report(), "nobody", "cpu") == []


def test_a_failed_station_is_stepped_over(make_report):
    report = make_report()
    rows = tuple(
        row.model_copy(update={"status": "failed"}) if row.key == "student/onnx-fp32" else row for row in report.rows
    )
    links = speedup_stages(report.model_copy(update={"rows": rows}), "pruned/onnx-int8", "cpu")
    assert [link.before.key for link in links][:2] == ["teacher/torch-fp32", "teacher/onnx-fp32"]
    assert [link.stage for link in links] == ["onnx-fp32", "prune", "onnx-int8"]


def test_where_a_row_was_not_timed_there_is_no_factor(make_report):
    assert [link.speedup for link in speedup_stages(make_report(), "pruned/onnx-int8", "cuda")] == [None] * 4
    assert [link.gained for link in speedup_stages(make_report(), "pruned/onnx-int8", "cuda")] == [None] * 4


def test_the_best_variant_of_a_model_passes_the_gate_if_any_does(make_report, quality_of):
    report = make_report()
    place = report.rows[-1].targets["cpu"].model_copy(update={"select": quality_of(0.8, 0.913, "select", 0.905)})
    bad = report.rows[-1].model_copy(update={"targets": {"cpu": place}})
    report = judged(report.model_copy(update={"rows": (*report.rows[:-1], bad)}))
    assert fastest_variant(report, "pruned", "cpu").key == "pruned/onnx-fp32"
    assert fastest_variant(report, "pruned", "cpu", passing=False).key == "pruned/onnx-int8"
    assert fastest_variant(report, "pruned", "cuda") is None
