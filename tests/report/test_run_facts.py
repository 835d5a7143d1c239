import pytest

from compress.model_folder.model_history import PrunedLayer, PruningInfo
from compress.prune.latency_table import SpeedupResult
from compress.report.charts.heat_maps import pruning_chart
from compress.report.charts.score_and_speed_charts import latency_charts
from compress.report.pages.render import render_html, render_markdown
from compress.report.report_schema import Report
from compress.report.run_facts import pruned_structure
from compress.report.tables.model_tables import describe_goal, pruning_table, speedup_table
from tests.prune.test_latency_table import table
from tests.report.conftest import apply_gates

LAYER = PrunedLayer(
    heads=(0, 2),
    ffn=tuple(range(32)),
    heads_importance=(3.0, 5.0),
    ffn_importance=(1.0,) * 32,
    removed_heads_importance=(1.0, 1.0),
    removed_ffn_importance=(0.25,) * 32,
)
OLD = PrunedLayer(heads=(0,), ffn=(0, 1), heads_importance=(3.0,), ffn_importance=(1.0, 2.0))
REACHED = SpeedupResult(
    goal=2.0,
    table=table(),
    attempts=(
        {"heads": (2, 2), "ffn": (32, 16), "predicted": 3.8, "measured": 3.1},
        {"heads": (3, 4), "ffn": (32, 32), "predicted": 19 / 10, "measured": 2.02},
    ),
    chosen=1,
)


def structure(*layers: PrunedLayer):
    return pruned_structure(PruningInfo(criterion="taylor", layers=layers))


def test_heads_stay_in_order_and_neurons_form_blocks_by_importance():
    shown = structure(LAYER)
    assert [cell.importance for cell in shown.heads[0].cells] == [3.0, 1.0, 5.0, 1.0]
    assert [cell.kept for cell in shown.heads[0].cells] == [1.0, 0.0, 1.0, 0.0]
    assert shown.heads[0].importance == pytest.approx(0.8)
    assert [cell.importance for cell in shown.ffn[0].cells] == [1.0] * 8 + [0.25] * 8
    assert [cell.kept for cell in shown.ffn[0].cells] == [1.0] * 8 + [0.0] * 8


def test_a_part_with_fewer_units_than_blocks_has_one_cell_a_unit():
    few = LAYER.model_copy(update={"ffn": (1,), "ffn_importance": (2.0,), "removed_ffn_importance": (1.0,)})
    assert len(structure(few).ffn[0].cells) == 2


def test_the_table_counts_units_and_shares():
    assert dict(pruning_table(structure(LAYER)).rows[0]) == {
        "layer": "0",
        "heads": "2 of 4",
        "their importance": "80.0 %",
        "FFN neurons": "32 of 64",
        "importance of the neurons": "80.0 %",
    }


def test_a_layer_that_was_dropped_is_shown_as_such():
    kept, removed = ("heads", "heads_importance", "ffn", "ffn_importance"), (8.0, 1.0, 5.0, 1.0)
    dropped = PrunedLayer.model_validate(
        dict.fromkeys(kept, ()) | {"removed_heads_importance": removed, "removed_ffn_importance": (1.0,) * 64}
    )
    shown = structure(LAYER, dropped)
    row = pruning_table(shown).rows[1]
    assert (row["heads"], row["their importance"], row["FFN neurons"]) == ("dropped", "0.0 %", "dropped")
    chart = pruning_chart(shown, 0, 324)
    assert chart is not None
    assert chart.count('class="quiet"') == 2


def test_models_of_earlier_versions_have_counts_only():
    old = structure(OLD)
    assert pruning_table(old).rows[0]["heads"] == "1"
    assert pruning_table(old).rows[0]["their importance"] == "–"
    assert pruning_chart(old, 0, 324) is None


def test_no_importance_at_all_is_not_divided_by():
    zero = LAYER.model_copy(update={"heads_importance": (0.0, 0.0), "removed_heads_importance": (0.0, 0.0)})
    assert structure(zero).heads[0].importance is None
    assert pruning_chart(structure(zero), 0, 324)


def test_the_chart_frames_what_was_kept():
    chart = pruning_chart(structure(LAYER, LAYER), 1, 324)
    assert chart.count('class="fill s1"') == 2 * (4 + 16)
    assert chart.count('class="chosen"') == 2 * (2 + 8)
    assert "layer 1, 2: importance 5, 100.0 % kept" in chart


def test_pages_show_what_pruning_kept(make_report):
    report = make_report().model_copy(update={"pruned": {"pruned": structure(LAYER)}})
    assert "### What pruning kept: pruned" in render_markdown(report)
    assert "| 2 of 4 |" in render_markdown(report)
    assert "what pruning kept" in render_html(report)
    assert "What pruning kept" not in render_html(make_report())
    assert Report.model_validate_json(report.model_dump_json()).pruned == report.pruned


@pytest.fixture
def reached_report(make_report):
    kept = structure(LAYER).model_copy(update={"speedup": REACHED, "target": "cpu"})
    return make_report().model_copy(update={"pruned": {"pruned": kept}})


def test_predicted_and_measured_speed_ups_are_compared_with_the_timing_session(reached_report):
    before, first, kept, timed = speedup_table(reached_report, "pruned", REACHED).rows
    assert before["latency by the table"] == "19 ms"
    assert (before["heads"], before["p50"]) == ("4", "1.31 ms")
    assert (first[""], first["faster by the table"], first["faster, measured"]) == ("attempt 1", "3.80×", "3.10×")
    assert (kept[""], kept["latency by the table"], kept["faster, measured"]) == ("attempt 2, kept", "10 ms", "2.02×")
    assert (timed["heads"], timed["FFN neurons"], timed["p50"]) == ("3, 4", "32, 32", "0.615 ms")
    assert timed["faster, measured"].startswith("2.1")
    assert " to " in timed["95 %"]
    assert describe_goal(REACHED) == "2× in onnx-int8 (1 thread, batch 1, 16 word pieces; a processor)"


def test_a_speed_up_that_the_timing_session_does_not_confirm_is_a_warning(reached_report):
    def warnings(goal):
        reached = REACHED.model_copy(update={"goal": goal})
        kept = reached_report.pruned["pruned"].model_copy(update={"speedup": reached})
        shown = apply_gates(reached_report.model_copy(update={"pruned": {"pruned": kept}}))
        return [remark for remark in shown.remarks if "asked for" in remark]

    assert warnings(2.0) == []
    (warning,) = warnings(3.0)
    assert warning.startswith("The speed-up asked for was 3×: pruned/onnx-int8 is 2.1")


def test_a_table_from_elsewhere_has_predictions_only(reached_report):
    attempt = REACHED.attempts[1].model_copy(update={"measured": None})
    reached = REACHED.model_copy(update={"attempts": (attempt,), "chosen": 0})
    kept = reached_report.pruned["pruned"].model_copy(update={"speedup": reached, "target": None})
    shown = speedup_table(reached_report.model_copy(update={"pruned": {"pruned": kept}}), "pruned", reached)
    assert [row["faster, measured"] for row in shown.rows] == ["–", "–", "–"]
    assert shown.rows[1]["faster by the table"] == "1.90×"


def test_the_latency_table_is_drawn_with_what_the_layers_keep():
    heads, ffn = latency_charts(REACHED, 1)
    assert "4 heads: 3 ms" in heads
    assert "layer 0 keeps 3 heads: 2 ms" in heads
    assert "64 FFN neurons: 6 ms" in ffn
    assert ffn.count("hollow") == 2


def test_pages_show_how_a_goal_of_speed_up_was_reached(reached_report):
    assert "Goal: 2× in onnx-int8" in render_markdown(reached_report)
    assert "| attempt 2, kept | 3, 4 | 32, 32 |" in render_markdown(reached_report)
    assert render_html(reached_report).count("layer 1 keeps") == 2
    assert Report.model_validate_json(reached_report.model_dump_json()).pruned == reached_report.pruned
