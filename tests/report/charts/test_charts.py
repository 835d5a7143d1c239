import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from compress.report.charts.score_and_speed_charts import Point, Series, xy_chart
from compress.report.charts.svg import MARKERS, Frame, marker, ticks
from compress.variants import VARIANTS

NAMESPACE = "{http://www.w3.org/2000/svg}"
FRAME = Frame(680, 340, (0.1, 100.0), (50.0, 100.0))


def elements(svg: str, tag: str, css_class: str) -> list[dict[str, str]]:
    result = ET.fromstring(svg).iter(NAMESPACE + tag)
    return [dict(one.attrib) for one in result if css_class in one.get("class", "").split()]


def texts(svg: str) -> dict[str, dict[str, str]]:
    return {one.text: dict(one.attrib) for one in ET.fromstring(svg).iter(f"{NAMESPACE}text") if one.text}


def series(*points: tuple[float, float], label: str = "a", **settings) -> Series:
    return Series(label, tuple(Point(x, y, "<&") for x, y in points), 1, 0, **settings)


def test_low_values_are_left_and_down():
    svg = xy_chart([series((1.0, 90.0)), series((10.0, 60.0))], FRAME, "ms", "score")
    first, second = elements(svg, "circle", "mark")
    assert float(first["cx"]) < float(second["cx"])
    assert float(first["cy"]) < float(second["cy"])


def test_intervals_are_lines_through_the_marker():
    point = Point(1.0, 90.0, "", x_interval=(0.9, 1.1), y_interval=(88.0, 92.0))
    svg = xy_chart([Series("a", (point,), 0, 0)], FRAME, "ms", "score")
    vertical, horizontal = elements(svg, "line", "whisker")
    assert (vertical["x1"], horizontal["y1"]) == (vertical["x2"], horizontal["y2"])


def test_rows_that_missed_the_gate_are_hollow():
    svg = xy_chart([series((2.0, 60.0), filled=False)], FRAME, "ms", "score")
    assert len(elements(svg, "circle", "hollow")) == 1


def test_a_series_of_several_points_is_a_line():
    svg = xy_chart([series((2.0, 60.0), (3.0, 70.0))], FRAME, "ms", "score")
    assert len(ET.fromstring(svg).findall(f"{NAMESPACE}polyline")) == 1


def test_labels_do_not_overlap_and_stay_inside():
    crowd = [series((x, 90.0), label=name, labelled=True) for name, x in (("one", 1.0), ("two", 1.1), ("three", 90.0))]
    labels = texts(xy_chart(crowd, FRAME, "ms", "score"))
    heights = sorted(float(labels[name]["y"]) for name in ("one", "two", "three"))
    assert min(after - before for before, after in pairwise(heights)) >= 14
    assert labels["three"]["text-anchor"] == "end"
    assert all(0 < float(labels[name]["x"]) < 680 for name in ("one", "two", "three"))


@pytest.mark.parametrize(("x", "anchor"), [(2.0, "end"), (60.0, "start")])
def test_a_long_label_has_two_lines_inside_a_narrow_chart(x, anchor):
    narrow = Frame(324, 320, (1.0, 100.0), (50.0, 100.0))
    name = "part-1x2x192/onnx-int8-embeddings-4bit"
    labels = texts(xy_chart([series((x, 90.0), label=name, labelled=True)], narrow, "ms", "score"))
    model, variant = labels["part-1x2x192/"], labels["onnx-int8-embeddings-4bit"]
    assert name not in labels
    assert model["text-anchor"] == variant["text-anchor"] == anchor
    assert float(variant["y"]) - float(model["y"]) == 14
    assert 0 < float(variant["x"]) <= 324


def test_names_are_escaped():
    svg = xy_chart([series((1.0, 60.0), label="<script>&", labelled=True)], FRAME, "<", "&")
    assert "<script" not in svg
    ET.fromstring(svg)


def test_ticks_are_round():
    assert ticks(0.5, 14.0, log=True, limit=8) == [0.5, 1.0, 2.0, 5.0, 10.0]
    assert ticks(0.1, 1000.0, log=True, limit=5) == pytest.approx([0.1, 1.0, 10.0, 100.0, 1000.0])
    assert ticks(88.3, 93.1, log=False, limit=6) == [89, 90, 91, 92, 93]
    assert ticks(0.0, 0.1, log=False, limit=5) == pytest.approx([0.0, 0.02, 0.04, 0.06, 0.08, 0.1])


def test_a_logarithmic_axis_of_less_than_a_decade_has_linear_ticks():
    assert ticks(2500.0, 9000.0, log=True, limit=8) == [3000, 4000, 5000, 6000, 7000, 8000, 9000]
    assert Frame(100, 100, (1, 100), (1, 100)).x(10) == pytest.approx(68)


def test_every_variant_has_a_marker_of_its_own():
    kinds = len(VARIANTS)
    assert kinds > len(MARKERS) >= 8
    shapes = {marker(kind, 5, 5, 4, "x") for kind in range(kinds)}
    assert len(shapes) == kinds
    corners = [float(part) for shape in shapes for part in re.findall(r"-?[\d.]+", shape)]
    assert all(-1 <= value <= 11 for value in corners)
