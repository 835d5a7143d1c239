import re

import pytest

from compress.model_folder.model_history import EvaluationInfo, LayerMap
from compress.report.charts.heat_maps import layer_map_chart
from compress.report.charts.score_and_speed_charts import _gate, colour_of, speed_chart, training_chart
from compress.report.charts.svg import Frame
from compress.report.pages.render import render_html, render_markdown
from compress.report.report_schema import Report, ReportModel
from tests.report.conftest import apply_gates, edited

MEASURED = LayerMap(chosen="measured", pairs=((0, 1), (1, 2)), likeness=((0.4, 0.9, 0.5), (0.3, 0.6, 0.95)), rows=256)


def test_the_speed_chart_has_a_marker_for_each_timed_row(make_report):
    report = apply_gates(make_report())
    for width in (324, 680):
        chart = speed_chart(report, "cpu", width)
        assert chart is not None
        assert len(re.findall('class="(?:fill|hollow) mark', chart)) == 9
        assert {"pruned/onnx-int8", report.teacher} <= set(re.findall('strong outlined"[^>]*>([^<]*)<', chart))
        assert "the gate: teacher − 1 point" in chart
    assert speed_chart(report, "cuda", 680) is None


@pytest.mark.parametrize("larger", [True, False])
def test_what_misses_the_gate_is_on_its_worse_side(make_report, larger):
    frame = Frame(680, 340, (0.1, 100.0), (0.0, 1.0))
    area, line, label = _gate(frame, frame.y(0.5), "the gate", larger)
    top, height = (float(re.search(rf'{name}="([\d.]+)"', area)[1]) for name in ("y", "height"))
    assert (top, top + height) == ((frame.y(0.5), frame.bottom) if larger else (frame.top, frame.y(0.5)))
    assert "missed-area" in area
    assert ("gate" in line, "the gate" in label) == (True, True)


def test_the_speed_chart_of_one_row_has_no_nan(make_report):
    chart = speed_chart(make_report(rows=make_report().rows[:1]), "cpu", 324)
    assert chart is not None
    assert "nan" not in chart


def test_the_speed_chart_says_that_cascades_are_drawn_at_their_mean(make_report):
    report = make_report()
    timed = report.results[-1].latency.model_copy(update={"by_mean": True})
    with_cascade = edited(report, report.results[-1].key, latency=timed)
    assert "p50 (cascades: mean)" not in speed_chart(report, "cpu", 324)
    assert "p50 (cascades: mean)" in speed_chart(with_cascade, "cpu", 324)
    assert "mean" not in speed_chart(with_cascade, "cpu", 324, axis="size")


def test_every_model_has_a_colour(make_report):
    models = (("teacher", None), *((f"student-{number}", "teacher") for number in range(9)))
    report = make_report(
        models=tuple(ReportModel(name=name, parent=parent, section="distill") for name, parent in models)
    )
    colours = [colour_of(report, name) for name, _ in models]
    assert colours == [*range(8), 0, 1]
    assert all(f".s{colour} " in render_html(apply_gates(make_report())) for colour in colours)


def test_pairs_are_framed_and_similar_layers_are_deep():
    chart = layer_map_chart(MEASURED, 1, 324)
    cells = dict(re.findall(r"<title>(student.*?)</title>.*?fill-opacity=\"([\d.]+)\".*?</g>", chart))
    assert len(cells) == 6
    depths = {title: float(depth) for title, depth in cells.items()}
    assert max(depths, key=depths.get) == "student 1, teacher 2, CKA 0.95"
    assert min(depths, key=depths.get) == "student 1, teacher 0, CKA 0.30"
    framed = [part for part in chart.split("<g>") if 'class="chosen"' in part]
    assert [re.search("teacher ([0-9])", part)[1] for part in framed] == ["1", "2"]


def test_a_layer_map_without_similarities_is_drawn():
    chart = layer_map_chart(LayerMap(chosen="last", pairs=((0, 4), (1, 5))), 0, 324)
    assert chart.count("cell-empty") == 12
    assert chart.count('class="chosen"') == 2
    assert "CKA" not in chart


def test_pages_show_layer_maps(make_report):
    report = apply_gates(make_report()).model_copy(update={"layer_maps": {"student": MEASURED}})
    assert "- student: 0 ← 1 (0.90), 1 ← 2 (0.95), measured" in render_markdown(report)
    assert "Layer map: student" in render_html(report)
    assert Report.model_validate_json(report.model_dump_json()).layer_maps == report.layer_maps


def test_a_layer_map_of_many_layers_stays_inside():
    likeness = tuple(tuple(0.5 for _ in range(24)) for _ in range(12))
    chart = layer_map_chart(LayerMap(chosen="measured", pairs=((0, 1),), likeness=likeness), 0, 324)
    boxes = re.findall(r'<rect class="fill[^>]* x="([\d.]+)"[^>]* width="([\d.]+)"', chart)
    assert len(boxes) == 12 * 24
    assert max(float(x) + float(width) for x, width in boxes) <= 324
    assert ">0.50<" not in chart  # too narrow for text


@pytest.mark.parametrize("render", [render_html, render_markdown])
def test_reports_without_layer_maps_have_no_section(make_report, render):
    assert "Layer map" not in render(apply_gates(make_report()))


def test_the_size_chart_has_a_marker_for_each_row_with_a_size(make_report):
    report = apply_gates(make_report())
    chart = speed_chart(report, "cpu", 680, axis="size")
    assert "megabytes" in chart
    sized = [row for row, result in report.rows_at("cpu") if result.test and row.bytes_total]
    assert len(re.findall("data-name=", chart)) == len(sized)
    assert len(re.findall(r"<title>[^<]*/[^<]*: [0-9.]+, [^<]* ms, [^<]*B</title>", chart)) == len(sized)


def evaluations(*scores, losses=(0.9, 0.5, 0.4)):
    return tuple(
        EvaluationInfo(update=10 * number, epoch=number, score=score, losses={"task": loss})
        for number, (score, loss) in enumerate(zip(scores, losses, strict=True), 1)
    )


def test_a_training_has_a_curve_of_scores_or_else_of_its_loss(make_report):
    report = make_report()
    model = report.models[0].name
    scored = report.model_copy(update={"curves": {model: evaluations(0.7, 0.8, 0.79)}})
    assert "epoch 2: accuracy on select 80" in training_chart(scored, model, 680)
    assert f"Training curve: {model}" in render_html(apply_gates(scored))
    unscored = report.model_copy(update={"curves": {model: evaluations(None, None, None)}})
    assert "epoch 3: loss 0.4" in training_chart(unscored, model, 680)
    assert training_chart(report, model, 680) is None
    flat = report.model_copy(update={"curves": {model: evaluations(0.8, 0.8, 0.8)}})
    assert "nan" not in training_chart(flat, model, 680)


def test_the_page_has_the_steps_that_led_to_the_winner_with_their_cost(make_report):
    report = apply_gates(make_report())
    winner = report.row(report.verdict("cpu").winner)
    page = render_html(report)
    for step in winner.steps:
        assert f"<li><span>{step}</span>" in page
