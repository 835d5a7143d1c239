"""The tables and charts of the pages, for a report with all measurements, with few, and from earlier versions."""

import re
from pathlib import Path

import pytest

from compress.measure.result_base import Score
from compress.report.charts.score_and_speed_charts import reliability_chart
from compress.report.pages.page_sections import block_groups
from compress.report.pages.render import render_html, render_markdown
from compress.report.report_schema import Report, read_report
from compress.report.tables.ledger_tables import ledger_table, stage_table
from compress.report.tables.machine_facts import environment_facts
from compress.report.tables.quality_tables import calibration_table, disagreement_table, robustness_table, slice_table
from compress.report.tables.size_tables import energy_sources, footprint_table, serving_reasons, serving_table
from compress.report.tables.speed_tables import (
    end_to_end_table,
    grid_table,
    interference_table,
    limits_table,
    load_table,
    timing_table,
)
from tests.report.conftest import apply_gates, edited

WINNER = "pruned/onnx-int8"
PUBLISHED = Path(__file__).parents[3] / "reports"


def headings(report: Report) -> list[str]:
    return [
        block.heading
        for blocks in block_groups(report, "cpu", WINNER, report.verdict("cpu")).values()
        for block in blocks
    ]


def test_every_measurement_has_a_block(make_full_report):
    report = make_full_report()
    assert headings(report) == [
        "The winner compared",
        "Score retained",
        "The gate, on select",
        "Classes",
        "Confusion matrix",
        "Calibration and agreement",
        "By length",
        "By source",
        "Changed texts",
        f"Largest disagreements of {WINNER} and the teacher",
        "All timings",
        "End to end, and the first prediction",
        "Interference",
        "Batch and length",
        "Several callers",
        "Share of the machine's limits",
        "Parameters, operations, bytes and energy",
        "Memory while serving",
    ]
    for page in (render_markdown(report), render_html(report)):
        plain = page.replace("\\", "").replace("&#39;", "'")
        assert [heading for heading in headings(report) if heading not in plain] == []


def test_missing_measurements_have_no_block(make_report):
    assert headings(apply_gates(make_report())) == [
        "The winner compared",
        "Score retained",
        "The gate, on select",
        "Classes",
        "Calibration and agreement",
        "All timings",
        "End to end, and the first prediction",
        "Parameters, operations, bytes and energy",
    ]


def test_unstable_timings_are_marked_with_their_reason(make_full_report):
    report = make_full_report()
    row = timing_table(report, "cpu").rows[5]
    assert row["timing"] == "unstable"
    assert row["p50"].startswith("≈ ")
    assert interference_table(report, "cpu").rows[5]["unstable because"] == "other work took 31 % of the cores"
    assert "≈" not in timing_table(report, "cpu").rows[0]["p50"]
    assert any(remark.startswith("Timings on cpu are unstable for student/onnx-int8") for remark in report.remarks)


def test_an_unstable_winner_is_marked_in_the_headline(make_report, latency_of):
    unstable = latency_of(0.61, 8, status="unstable", reason="the hypervisor took 20 % of the cores")
    report = apply_gates(edited(make_report(), WINNER, latency=unstable))
    for page in (render_markdown(report), render_html(report)):
        head = page[: page.index("Warnings")]
        assert f"{WINNER}: the hypervisor took 20 % of the cores" in head
        assert re.search(r"≈ 19\.\d×", head)


def test_first_prediction_and_interference_are_shown(make_full_report):
    report = make_full_report()
    assert end_to_end_table(report, "cpu").rows[0]["first prediction"] == "1.4 s"
    assert interference_table(report, "cpu").rows[0]["precision"] == "±1.3 %"
    assert interference_table(report, "cpu").rows[0]["neighbouring cores"] == "40.0 %"


def test_the_grid_shows_speedups_of_its_own_rounds(make_full_report):
    report = make_full_report()
    shown = grid_table(report, "cpu")
    assert shown.columns[2:] == ("1 × 32", "8 × 32", "32 × 32", "1 × 128", "8 × 128", "32 × 128")
    assert "×)" not in shown.rows[0]["1 × 32"]
    assert shown.rows[-1]["1 × 32"].endswith("(19.2×)")


def test_unstable_load_and_an_unwatched_accelerator_are_marked(make_full_report):
    report = make_full_report()
    result = report.results[0]
    loads = tuple(one.model_copy(update={"unstable": "its laps differ"}) for one in result.latency.under_load)
    marked = result.latency.model_copy(update={"under_load": loads, "reason": "not watched on CUDA: no NVML"})
    report = edited(report, result.key, latency=marked)
    assert load_table(report, "cpu").rows[0]["1 caller"].startswith("≈ ")
    assert not load_table(report, "cpu").rows[1]["1 caller"].startswith("≈ ")
    assert interference_table(report, "cpu").rows[0]["note"] == "not watched on CUDA: no NVML"
    assert "accelerator" not in interference_table(report, "cpu").columns


def test_load_is_shown_by_number_of_callers(make_full_report):
    report = make_full_report()
    assert load_table(report, "cpu").columns == ("model", "variant", "1 caller", "2 callers", "4 callers")


def test_quality_tables_show_calibration_slices_and_disagreements(make_full_report):
    report = make_full_report()
    assert calibration_table(report, "cpu").rows[-1]["calibration error (95 %)"] == "6.1 % (5.0 % to 7.0 %)"
    assert slice_table(report, "cpu", WINNER, "source").rows[1][WINNER] == "fewer than 20 rows"
    assert slice_table(report, "cpu", report.teacher, None).columns == ("by length", "rows", report.teacher)
    assert robustness_table(report, "cpu").columns == ("model", "variant", "original", "typos", "case", "truncation")
    assert len(disagreement_table(report, "cpu", WINNER).rows) == 20
    test = report.result(WINNER, "cpu").test.model_copy(update={"disagreements": ()})
    (none,) = disagreement_table(edited(report, WINNER, test=test), "cpu", WINNER).rows
    assert none["row of test"] == "none"
    assert reliability_chart(report, "cpu", WINNER).count("<polyline") == 2
    assert any("the winner is overconfident" in remark for remark in report.remarks)


def test_changes_of_an_error_are_those_of_its_values(make_full_report):
    """What is a loss of 0.009 is shown as an error that rose by as much, beside both errors."""
    report = make_full_report()

    def turned(quality):
        low, high = 1 - quality.primary.high, 1 - quality.primary.low
        primary = Score(value=1 - quality.primary.value, low=low, high=high)
        parts = tuple(part.model_copy(update={"primary": primary}) for part in quality.by_length)
        return quality.model_copy(update={"larger_is_better": False, "primary": primary, "by_length": parts})

    results = (each.model_copy(update={"test": turned(each.test)}) for each in report.results)
    report = report.model_copy(update={"results": tuple(results)})
    rows = {f"{row['model']}/{row['variant']}": row for row in ledger_table(report, "cpu").rows}
    scores = [rows[key]["accuracy (95 %)"][:6] for key in (report.teacher, WINNER)]
    assert (scores, rows[WINNER]["vs teacher"]) == (["0.0850", "0.0940"], "+0.0090*")
    assert stage_table(report, "cpu", WINNER).rows[-2]["accuracy"] == "+0.0050"
    assert slice_table(report, "cpu", WINNER, None).rows[0]["95 % of the change"] == "+0.0030 to +0.0150"
    assert "Down and left is better" in render_html(report)
    assert "Up and left is better" in render_html(make_full_report())


def test_resources_are_shown_or_why_they_are_missing(make_full_report):
    report = make_full_report()
    row = footprint_table(report, "cpu").rows[0]
    assert (row["without embeddings"], row["one row of 128"]) == ("10.8 M", "2.41 GFLOP")
    assert row["energy a row"] == "not measured"
    assert energy_sources(report, "cpu") == ["Energy was not measured: this system shows no energy counters"]
    assert serving_table(report, "cpu").rows[0]["batches of 32, peak"] == "–"
    assert serving_reasons(report, "cpu")[0] == "teacher/torch-fp32, batch 32: a batch of 32 does not fit in memory"
    assert [row["limit"] for row in limits_table(report.limits).rows] == [
        "fp32 matrix rate",
        "int8 matrix rate",
        "memory bandwidth",
        "bf16",
    ]


def test_known_machine_facts_are_shown(make_full_report, make_report):
    facts = dict(environment_facts(make_full_report()))
    assert facts["Machine"] == "A Processor <8>, 2 of 64 cores with 2 threads each, 8.0 GB of 64.0 GB memory"
    assert facts["Clock"] == "governor powersave, 800 to 3,500 MHz, turbo on"
    assert facts["Shared with"] == "a hypervisor (kvm), a container's limit of 2 cores"
    assert set(dict(environment_facts(make_report()))) == {"Machine", "System", "Instructions"}


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*/report.json")), ids=lambda path: path.parent.name)
def test_published_reports_of_earlier_versions_are_drawn(path: Path):
    if '"verdicts"' not in path.read_text(encoding="utf-8"):
        pytest.skip("another kind of report")
    report = read_report(path)
    assert report.name in render_markdown(report)
    assert render_html(report).count("<details") > 3
