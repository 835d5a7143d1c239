import re

import pytest

from compress.model_info import LayerMap
from compress.report.charts.layer_map_chart import layer_figure
from compress.report.pages.render import render_html, render_markdown
from compress.report.report_schema import Report
from compress.select.select_winner import judged

MEASURED = LayerMap(chosen="measured", pairs=((0, 1), (1, 2)), likeness=((0.4, 0.9, 0.5), (0.3, 0.6, 0.95)), rows=256)


def test_the_pairs_are_framed_and_the_alike_are_deep():
    drawn = layer_figure(MEASURED, 1, 324)
    cells = re.findall(r"<title>(.*?)</title>.*?fill-opacity=\"([\d.]+)\".*?</g>", drawn)
    assert len(cells) == 6
    depths = {title: float(depth) for title, depth in cells}
    assert max(depths, key=depths.get) == "student 1, teacher 2, CKA 0.95"
    assert min(depths, key=depths.get) == "student 1, teacher 0, CKA 0.30"
    framed = [part for part in drawn.split("<g>") if 'class="chosen"' in part]
    assert [re.search("teacher ([0-9])", part)[1] for part in framed] == ["1", "2"]


def test_many_layers_have_room():
    deep = LayerMap(
        chosen="uniform", pairs=tuple((layer, 2 * layer + 1) for layer in range(12)), likeness=((1.0,) * 24,) * 12
    )
    drawn = layer_figure(deep, 1, 324)
    ends = [
        float(x) + float(width) for x, width in re.findall(r'rx="3" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn)
    ]
    assert max(ends) <= 324


def test_a_map_without_likeness_is_drawn_too():
    drawn = layer_figure(LayerMap(chosen="last", pairs=((0, 4), (1, 5))), 0, 324)
    assert drawn.count("cell-empty") == 12
    assert drawn.count('class="chosen"') == 2
    assert "CKA" not in drawn


def test_pages_tell_the_map(make_report):
    report = judged(make_report()).model_copy(update={"layer_maps": {"student": MEASURED}})
    assert "- student: 0 ← 1 (0.90), 1 ← 2 (0.95), measured" in render_markdown(report)
    assert "Which layers follow which: student" in render_html(report)
    assert Report.model_validate_json(report.model_dump_json()).layer_maps == report.layer_maps


@pytest.mark.parametrize("render", [render_html, render_markdown])
def test_reports_without_one_are_as_they_were(make_report, render):
    assert "Which layers follow which" not in render(judged(make_report()))
