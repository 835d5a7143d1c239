import math
import re
from xml.etree import ElementTree as ET

import pytest

from compress.report.charts.heatmap import Cell, heat
from compress.report.charts.line_charts import Curve, Dot, load, reliability
from compress.report.charts.svg import Frame, glyph, linear_ticks, log_ticks
from compress.report.charts.svg_charts import Bar, Point, Step, bars, speed_score, waterfall


def point(x: float, y: float, **changes: object) -> Point:
    fields = {
        "label": f"at {x}",
        "x": x,
        "x_low": x * 0.98,
        "x_high": x * 1.02,
        "y": y,
        "y_low": y - 1,
        "y_high": y + 1,
        "series": 0,
        "glyph": 0,
        "passed": True,
    }
    return Point(**{**fields, **changes})


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def drawn(svg: str, tag: str, word: str) -> list[dict[str, str]]:
    found = parsed(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}")
    return [dict(one.attrib) for one in found if word in one.get("class", "").split()]


def test_fast_is_left_and_good_is_up():
    svg = speed_score([point(1.0, 90.0), point(10.0, 80.0)], 85.0, "gate", ("ms", "score"), 680)
    (fast, slow) = drawn(svg, "circle", "mark")
    assert float(fast["cx"]) < float(slow["cx"])
    assert float(fast["cy"]) < float(slow["cy"])
    (gate,) = drawn(svg, "line", "gate")
    assert float(fast["cy"]) < float(gate["y1"]) < float(slow["cy"])


def test_everything_stays_inside():
    for width in (324, 680):
        points = [point(0.1 * 3**place, 70.0 + 5 * place, named=True) for place in range(6)]
        svg = speed_score(points, 71.0, "the gate", ("ms", "score"), width)
        height = float(parsed(svg).get("height"))
        for mark in drawn(svg, "circle", "mark"):
            assert 0 < float(mark["cx"]) < width
            assert 0 < float(mark["cy"]) < height


def test_labels_do_not_lie_on_marks_of_others():
    crowd = [point(1.0, 90.0, named=True, label="first"), point(1.3, 90.0, label="x"), point(0.4, 60.0, label="y")]
    svg = speed_score(crowd, None, "", ("ms", "score"), 680)
    (label,) = list(drawn(svg, "text", "label"))
    marks = drawn(svg, "circle", "mark")
    other = max(float(mark["cx"]) for mark in marks)
    assert label["text-anchor"] != "start" or abs(float(label["x"]) - other) > 40 or abs(float(label["y"]) - 90) > 8


def test_one_point_and_no_gate_are_enough():
    svg = speed_score([point(2.0, 50.0, y_low=50.0, y_high=50.0)], None, "", ("ms", "score"), 324)
    assert len(drawn(svg, "circle", "mark")) == 1
    assert drawn(svg, "line", "gate") == []
    zero = [point(2.0, 0.0, y_low=0.0, y_high=0.0)]
    assert "nan" not in speed_score(zero, None, "", ("ms", "score"), 324)


def test_a_refused_row_is_hollow():
    svg = speed_score([point(2.0, 50.0, passed=False)], None, "", ("ms", "score"), 324)
    assert len(drawn(svg, "circle", "hollow")) == 1


def test_names_cannot_break_the_page():
    svg = speed_score([point(1.0, 1.0, label="<script>&", named=True)], 0.5, "<b>", ("<", "&"), 324)
    assert "<script" not in svg
    parsed(svg)
    parsed(bars([Bar("<i>", 1.0, "&", 0)], 324))
    parsed(waterfall([Step("<i>", "&", 2.0, "<", 0)], "<", 324))


def test_bars_are_in_proportion():
    found = drawn(bars([Bar("a", 10.0, "10", 0), Bar("b", 5.0, "5", 1, marked=True)], 324), "rect", "fill")
    assert float(found[0]["width"]) == pytest.approx(2 * float(found[1]["width"]), abs=0.1)


def test_a_waterfall_adds_up():
    steps = [Step("a", "", 2.0, "2", 0), Step("b", "", 0.8, "0.8", 1), Step("c", "", 5.0, "5", 2)]
    svg = waterfall(steps, "8", 324)
    found = drawn(svg, "rect", "fill")
    begin = [float(one["x"]) for one in found]
    end = [float(one["x"]) + float(one["width"]) for one in found]
    assert begin[0] == 0.0
    assert end[1] == pytest.approx(end[0], abs=0.2)  # a loss goes back from where the bar before it ended
    assert begin[2] == pytest.approx(begin[1], abs=0.2)
    assert end[3] == pytest.approx(end[2], abs=0.2)
    assert (end[0] - begin[0]) / (end[3] - begin[3]) == pytest.approx(math.log(2) / math.log(8), abs=0.01)
    assert len(drawn(svg, "rect", "lost")) == 1


def test_a_waterfall_of_losses_is_drawn():
    assert "nan" not in waterfall([Step("a", "", 0.5, "0.5", 0)], "0.5", 324)
    assert "nan" not in waterfall([Step("a", "", 1.0, "1", 0)], "1", 324)


def test_ticks_are_round():
    assert log_ticks(0.5, 14.0, 8) == [0.5, 1.0, 2.0, 5.0, 10.0]
    assert log_ticks(0.1, 1000.0, 5) == pytest.approx([0.1, 1.0, 10.0, 100.0, 1000.0])
    assert linear_ticks(88.3, 93.1, 6) == [89, 90, 91, 92, 93]
    assert linear_ticks(0.0, 0.1, 5) == pytest.approx([0.0, 0.02, 0.04, 0.06, 0.08, 0.1])


def test_every_glyph_has_a_shape_of_its_own():
    shapes = {re.sub(r'class="[^"]*"', "", glyph(kind, 5, 5, 4, "x")) for kind in range(4)}
    assert len(shapes) == 4
    assert glyph(4, 5, 5, 4, "x") == glyph(0, 5, 5, 4, "x")


def curve(*dots: tuple[float, float], label: str = "a") -> Curve:
    return Curve(label, tuple(Dot(x, y, "<&", 1 / len(dots)) for x, y in dots), 1, 2)


def test_a_curve_of_trust_lies_where_it_should():
    svg = reliability([curve((60.0, 60.0), (90.0, 80.0))], ("sure", "right"), 324)
    (even,) = drawn(svg, "line", "even")
    points = parsed(svg).find("{http://www.w3.org/2000/svg}polyline").get("points")
    (x1, y1), (x2, y2) = (map(float, pair.split(",")) for pair in points.split())
    ends = {name: float(even[name]) for name in ("x1", "y1", "x2", "y2")}
    slope = (ends["y2"] - ends["y1"]) / (ends["x2"] - ends["x1"])
    assert y1 == pytest.approx(ends["y1"] + slope * (x1 - ends["x1"]), abs=0.5)  # on the line
    assert y2 > ends["y1"] + slope * (x2 - ends["x1"])  # too sure: below it
    assert "nan" not in reliability([curve((100.0, 100.0))], ("sure", "right"), 324)


def test_load_names_its_curves_inside():
    for width in (324, 680):
        svg = load([curve((100.0, 5.0), (180.0, 9.0), label="one"), curve((90.0, 2.0), label="two")], ("x", "y"), width)
        names = {text.text: float(text.get("x")) for text in parsed(svg).iter("{http://www.w3.org/2000/svg}text")}
        assert all(0 < names[name] < width for name in ("one", "two"))


def test_a_gain_is_deeper_and_a_loss_has_a_colour_of_its_own():
    cells = {("1", "32"): Cell(2.0, "2", "ms"), ("8", "32"): Cell(8.0, "8", "ms"), ("1", "128"): Cell(0.5, "<", "&")}
    svg = heat(cells, ["1", "8"], ["32", "128"], ("batch", "pieces"), 2, 324)
    few, many, lost = drawn(svg, "rect", "fill")
    assert float(few["fill-opacity"]) < float(many["fill-opacity"])
    assert "lost" in lost["class"]
    alone = heat({("1", "32"): Cell(None, "–", "2 ms")}, ["1"], ["32"], ("batch", "pieces"), 0, 324)
    assert len(drawn(alone, "rect", "cell-empty")) == 1
    assert "nan" not in heat({("1", "2"): Cell(1.0, "1", "")}, ["1"], ["2"], ("a", "b"), 0, 324)


def test_a_short_logarithmic_axis_has_ticks_too():
    svg = load([curve((2500.0, 5.0), (9000.0, 5.5))], ("x", "y"), 680)
    ticks = [text.text for text in parsed(svg).iter("{http://www.w3.org/2000/svg}text") if text.get("class") == "tick"]
    assert len(ticks) > 6
    assert Frame(0, 10, 0, 10, (1, 100), (1, 100), y_log=True).y(10) == pytest.approx(5)
