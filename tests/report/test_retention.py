"""Retention of the teacher's score above the baseline, and teachers that are not better than it."""

import pytest

from compress.measure.quality.quality_result import Difference, Quality
from compress.measure.result_base import Score
from compress.report.pages.render import render_html, render_markdown
from compress.report.report_warnings import ranked_remarks
from compress.report.retention import ratio_above_baseline, teacher_beats_baseline
from compress.report.tables.ledger_tables import comparison_table, ledger_table
from compress.report.tables.quality_tables import retention_table
from tests.report.conftest import apply_gates, edited


def baseline_with(quality_of, value: float, p_value: float) -> Quality:
    versus = Difference(value=value - 0.915, low=-0.2, high=0.1, p_value=p_value, test="mcnemar")
    return quality_of(value).model_copy(update={"versus_teacher": versus})


def error(value: float) -> Quality:
    score = Score(value=value, low=value - 0.01, high=value + 0.01)
    return Quality(role="test", rows=9, metric="mse", larger_is_better=False, primary=score, scores={"mse": score})


def test_retention_above_the_baseline(make_report):
    report = apply_gates(make_report())
    by_row = {(row["model"], row["variant"]): row for row in retention_table(report, "cpu").rows}
    assert len(by_row) == 8  # all but the reference
    row = by_row["pruned", "onnx-int8"]
    assert row["retained"] == "99.0 %"  # 0.906 / 0.915
    assert row["above the baseline"] == "91.7 %"  # (0.906 - 0.806) / (0.915 - 0.806)
    against = report.verdicts[0].comparisons[0]
    assert against.kept_above_floor == pytest.approx((0.906 - 0.806) / (0.915 - 0.806))
    assert comparison_table(report, report.verdicts[0]).rows[0]["above the baseline"] == "91.7 %"


def test_retention_of_an_error_metric(make_report):
    report = make_report(floor=error(0.8))
    # The interval of the floor lies above the teacher's: less is better.
    teacher, ours = error(0.2), error(0.3)
    report = edited(report, report.teacher, test=teacher)
    assert teacher_beats_baseline(report, "cpu")
    assert ratio_above_baseline(report, ours, teacher, "cpu") == pytest.approx(5 / 6)


def test_retention_is_undefined_for_a_teacher_not_better_than_the_baseline(make_report, quality_of):
    report = apply_gates(make_report(floor=baseline_with(quality_of, 0.913, 0.4)))
    assert teacher_beats_baseline(report, "cpu") is False
    assert {row["above the baseline"] for row in retention_table(report, "cpu").rows} == {"not meaningful"}
    assert comparison_table(report, report.verdicts[0]).rows[0]["above the baseline"] == "not meaningful"
    assert report.verdicts[0].comparisons[0].kept_above_floor is None
    assert report.remarks[0] == (
        "The teacher is not significantly better than a bag of words (accuracy 91.5 against 91.3, p 0.4):"
        " retaining its score is no success."
    )
    assert "not meaningful" in render_markdown(report)
    assert "not meaningful" in render_html(report)


def test_a_teacher_worse_than_the_baseline_is_reported(make_report, quality_of):
    report = apply_gates(make_report(floor=baseline_with(quality_of, 0.95, 0.001)))
    assert teacher_beats_baseline(report, "cpu") is False
    assert report.remarks[0].startswith("The teacher is significantly worse than a bag of words")


def test_without_a_paired_test_intervals_decide(make_report, quality_of):
    unpaired = quality_of(0.90).model_copy(update={"versus_teacher": None})
    assert teacher_beats_baseline(make_report(floor=unpaired), "cpu") is False
    apart = quality_of(0.80).model_copy(update={"versus_teacher": None})
    assert teacher_beats_baseline(make_report(floor=apart), "cpu") is True


def test_without_a_baseline_retention_is_absent(make_report):
    report = apply_gates(make_report(floor=None, floor_reason="left out"))
    assert teacher_beats_baseline(report, "cpu") is None
    assert {row["above the baseline"] for row in retention_table(report, "cpu").rows} == {"–"}
    assert [remark for remark in report.remarks if "teacher is not" in remark] == []
    assert teacher_beats_baseline(make_report(), "cuda") is None


def test_the_baseline_has_its_own_name(make_report, quality_of):
    report = apply_gates(make_report(floor=quality_of(0.905), floor_name="the most frequent tag of each word"))
    assert ledger_table(report, "cpu").rows[9]["model"] == "most frequent tag of each word"
    assert (
        "not clearly better than the most frequent tag of each word (accuracy 90.6 against 90.5)" in report.remarks[0]
    )
    missing = apply_gates(make_report(floor=None, floor_name="BM25", floor_reason="it ran out of memory"))
    assert missing.remarks == ("There is no BM25 to compare with: it ran out of memory.",)


def test_variants_that_were_not_worth_their_time_are_one_remark_and_no_failure(make_report):
    def remarks(count):
        report = make_report()
        reason = {"status": "not measured", "reason": "screened out: in a short timing it takes 1.1 times as long"}
        left = [each.model_copy(update=reason) if index < count else each for index, each in enumerate(report.rows)]
        report = apply_gates(report.model_copy(update={"rows": tuple(left)}))
        return [each for each in ranked_remarks(report) if "not measured" in each.text]

    (one,), (several,) = remarks(1), remarks(5)
    assert one.text.endswith(" was not measured: screened out: in a short timing it takes 1.1 times as long.")
    assert several.text.startswith("5 variants were not measured: ")
    assert several.text.endswith(" and 2 more.")
    assert "Nothing failed" in one.todo


def test_a_winner_that_passed_on_too_few_rows_to_tell(make_report):
    def remarks(rows):
        def on_few_rows(result):
            select = result.select and result.select.model_copy(update={"rows": rows})
            return result.model_copy(update={"select": select})

        report = make_report()
        report = apply_gates(report.model_copy(update={"results": tuple(map(on_few_rows, report.results))}))
        return [text for text in report.remarks if "too few" in text]

    assert remarks(300) == []
    assert remarks(54) == [
        "On cpu the winner passed the gate on 54 select rows, too few to show a loss of 1 point: 5.6 points can go"
        " unseen (95 %). At least 300 rows can show it: data.select gives more rows, data.select_share holds more of"
        " train back."
    ]
