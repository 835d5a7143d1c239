import re
from dataclasses import replace

import pytest

from compress.measure.quality.quality_result import Changed, ClassScore, Difference, Quality
from compress.measure.resources.serving_memory import ServingMemory
from compress.measure.result_base import Score
from compress.measure.timing.latency import Latency
from compress.report.pages.render import render_html, render_markdown
from compress.report.report_schema import Report, report_json
from compress.report.tables.ledger_tables import ledger_table
from compress.report.tables.speed_tables import timing_table
from compress.report.winner_summary import held_back_lines
from compress.runtimes import RUNTIMES
from compress.select.gate import correction, gate
from compress.select.ledger import HeldBack, Limits, Rules, Verdict
from compress.select.winner import over_budget
from tests.report.conftest import apply_gates, edited

RULES = Rules(max_drop=0.01, quantize_max_drop=0.005)


def lost(value: float, low: float | None = None) -> Difference:
    return Difference(value=value, low=value if low is None else low, high=value, p_value=0.5, test="mcnemar")


@pytest.fixture
def select(make_report) -> Quality:
    result = make_report().result("pruned/onnx-int8", "cpu").select
    assert result is not None
    return result


def passes(select: Quality, rules: Rules = RULES, quantized: bool = True, **classes: ClassScore) -> bool:
    return gate(rules, select, classes, quantized=quantized).outcome == "passed"


def unsure(drop: float, error: float) -> Difference:
    """A loss with a standard error."""
    return Difference(value=-drop, low=-drop - 1.96 * error, high=-drop + 1.96 * error, p_value=0.5, test="mcnemar")


def undecided(report: Report, *keys: str, drop: float, error: float) -> Report:
    """The report with the loss of some rows replaced on select."""
    for key in keys:
        select = report.result(key, "cpu").select
        changes = {"versus_teacher": unsure(drop, error), "versus_unquantized": unsure(0.0, 0.0)}
        report = edited(report, key, select=select.model_copy(update=changes))
    return report


def test_fastest_passing_candidate_wins(make_report):
    report = apply_gates(make_report())
    cpu, cuda = report.verdicts
    assert cpu.winner == "pruned/onnx-int8"
    assert cpu.why.startswith("the fastest of 8 that passed the gate (lost 0.9 points on select, 1 point allowed)")
    assert [each.key for each in cpu.comparisons] == ["teacher/torch-fp32", "teacher/onnx-int8", "student/onnx-int8"]
    against = cpu.comparisons[0]
    assert against.speedup is not None
    assert against.speedup.low < against.speedup.value < against.speedup.high
    assert against.speedup.value == pytest.approx(19, rel=0.05)
    assert against.smaller == pytest.approx(91.3 / 13.9)
    assert against.kept == pytest.approx(0.906 / 0.915)
    assert (cuda.winner, cuda.why) == (None, "not measured: no CUDA here")


def ruled_out(report: Report, *keys: str, everywhere: bool = False) -> Report:
    """The report with winners, where these rows do not run where they must, or where the root of an entry does."""
    for key in keys:
        report = edited(report, key, runs_everywhere=False, ruled_out=None if everywhere else "web has no X")
    return apply_gates(report)


def test_what_does_not_run_where_it_must_is_ruled_out_with_the_reason(make_report):
    report = make_report(rules=RULES.model_copy(update={"runs_in": ("web",)}))
    shown = ruled_out(report, report.teacher, "pruned/onnx-int8")
    verdict = shown.verdicts[0]
    assert (verdict.winner, verdict.everywhere) == ("student/onnx-int8", None)
    assert [row.key for row in verdict.held_back] == ["pruned/onnx-int8"]
    assert verdict.held_back[0].text.endswith("ms, ruled out: web has no X")
    gate = shown.result("pruned/onnx-int8", "cpu").gate
    assert (gate.outcome, gate.state, gate.why, gate.may_win) == ("passed", "ruled out", "web has no X", False)
    (row,) = [
        row for row in ledger_table(shown, "cpu").rows if f"{row['model']} {row['variant']}" == "pruned onnx-int8"
    ]
    assert row["gate"].startswith("ruled out")
    assert "web has no X" in render_markdown(shown)


def test_where_everything_is_ruled_out_nothing_wins(make_report):
    report = make_report(rules=RULES.model_copy(update={"runs_in": ("web",)}))
    result = ruled_out(report, *(row.key for row in report.rows)).verdicts[0]
    assert (result.winner, result.everywhere) == (None, None)
    assert result.why.startswith("every variant is ruled out: ")
    assert result.why.endswith(": web has no X")


def test_the_best_row_that_runs_everywhere_is_named_beside_the_winner(make_report):
    report = make_report()
    fastest = ("pruned/onnx-int8", "student/onnx-int8")
    verdict = ruled_out(report, *fastest, everywhere=True).verdicts[0]
    assert verdict.winner == "pruned/onnx-int8"
    assert verdict.everywhere.winner == "pruned/onnx-fp32"
    assert verdict.everywhere.comparison_with("teacher/torch-fp32").speedup.value == pytest.approx(11.6 / 1.4, rel=0.05)
    nowhere = ruled_out(report, *(row.key for row in report.rows), everywhere=True).verdicts[0]
    assert (nowhere.winner, nowhere.everywhere) == ("pruned/onnx-int8", None)


def test_the_reference_is_no_candidate(make_report):
    report = apply_gates(make_report())
    assert {each.key for each in report.results if each.gate is None} == {"teacher/torch-fp32"}


def test_a_drop_of_exactly_what_is_allowed_passes(select):
    assert passes(select.model_copy(update={"versus_teacher": lost(0.90 - 0.91)}))
    assert not passes(select.model_copy(update={"versus_teacher": lost(-0.0101)}))


def test_strict_gate_uses_the_interval(select):
    wide = select.model_copy(update={"versus_teacher": lost(-0.002, low=-0.02)})
    assert passes(wide)
    result = gate(RULES.model_copy(update={"strict": True}), wide, {}, quantized=False)
    assert result.outcome == "missed"
    assert result.reasons == ("may have lost 2 points (95 % interval) against the teacher, 1 point allowed",)


def test_quantized_candidate_is_also_compared_with_its_source(select):
    worse = select.model_copy(update={"versus_unquantized": lost(-0.006)})
    result = gate(RULES, worse, {}, quantized=True)
    assert result.reasons == ("lost 0.6 points against its own unquantized model, 0.5 points allowed",)
    assert passes(worse, quantized=False)


def test_class_gate_needs_fifty_rows(select):
    with_classes = RULES.model_copy(update={"max_class_drop": 0.02})
    ours = select.model_copy(update={"per_class": {"good": ClassScore(rows=60, recall=0.80)}})
    assert not passes(ours, with_classes, good=ClassScore(rows=60, recall=0.90))
    assert passes(ours, with_classes, good=ClassScore(rows=49, recall=0.90))
    assert passes(ours, RULES, good=ClassScore(rows=60, recall=0.90))


@pytest.mark.parametrize(
    ("drop", "error", "outcome", "more_rows"),
    [
        (0.004, 0.006, "passed", None),
        (0.016, 0.006, "missed", None),
        (0.005, 0.01, "undecided", 2600),  # 872 rows, four times as many would do
        (0.012, 0.01, "undecided", 21000),
        (-0.001, 0.02, "undecided", 2000),
        (0.01, 0.01, "undecided", None),  # no number of rows
        (0.011, 0.02, "undecided", None),  # 400 times as many
        (0.01, 0.0, "passed", None),
    ],
)
def test_a_loss_within_one_standard_error_of_the_allowance_is_undecided(select, drop, error, outcome, more_rows):
    result = gate(RULES, select.model_copy(update={"versus_teacher": unsure(drop, error)}), {}, quantized=False)
    assert (result.outcome, result.more_rows) == (outcome, more_rows)
    assert result.may_win == (outcome == "passed" or (outcome == "undecided" and drop <= 0.01))
    assert result.excess == pytest.approx(drop - 0.01)


@pytest.mark.parametrize(
    ("lost_rows", "rows", "strict", "outcome"),
    [
        (0, 180, False, "undecided"),
        (0, 190, False, "passed"),
        (1, 200, False, "undecided"),
        (0, 360, True, "missed"),
        (0, 370, True, "passed"),
        (9, 200, False, "missed"),
    ],
)
def test_few_lost_rows_decide_as_the_binomial_says(lost_rows, rows, strict, outcome, select):
    share = lost_rows / rows
    unsure_by = 1.96 * (share * (1 - share) / rows) ** 0.5  # what resamples show: none where no row was lost
    changed = Changed(lost=lost_rows, won=0, rows=rows)
    difference = lost(-share, -share - unsure_by).model_copy(update={"high": unsure_by - share, "changed": changed})
    scored = select.model_copy(update={"versus_teacher": difference, "rows": rows})
    result = gate(RULES.model_copy(update={"strict": strict}), scored, {}, quantized=False)
    assert result.outcome == outcome
    expected = {(0, 180): 9, (1, 200): 280}.get((lost_rows, rows))
    assert result.more_rows == (None if expected is None else pytest.approx(expected, rel=0.3))


def test_among_many_variants_errors_are_widened(select):
    assert correction(1, strict=False) == correction(10, strict=True) == 1.0
    assert correction(20, strict=False) == pytest.approx(1.41, abs=0.01)
    assert correction(20, strict=True) == pytest.approx(1.14, abs=0.01)
    scored = select.model_copy(update={"versus_teacher": unsure(0.004, 0.005)})
    assert gate(RULES, scored, {}, quantized=False, compared=10).outcome == "passed"
    result = gate(RULES, scored, {}, quantized=False, compared=20)
    assert (result.outcome, result.more_rows) == ("undecided", 330)  # 872 · ((1.41 · 0.005 / 0.006)² − 1)
    strict = gate(RULES.model_copy(update={"strict": True}), scored, {}, quantized=False, compared=20)
    assert strict.reasons[0].startswith("may have lost 1.52 points (95 % interval, corrected for 20 variants)")


def test_variants_with_different_scores_are_counted(make_report, monkeypatch):
    monkeypatch.setattr("compress.select.gate.MANY", 2)
    monkeypatch.setattr("compress.select.winner.MANY", 2)
    report = make_report()
    scores = {each.select.versus_teacher for each in report.results if not each.reference}
    assert apply_gates(report).verdicts[0].why.endswith(f"; the gate is corrected for {len(scores)} variants")


def test_an_undecided_gate_says_how_many_rows_would_tell(select):
    wide = select.model_copy(update={"versus_teacher": unsure(0.012, 0.01), "versus_unquantized": unsure(0.0051, 0.1)})
    assert gate(RULES, wide, {}, quantized=True).reasons == (
        "lost 1.2 points against the teacher, 1 point allowed: about 21,000 more select rows would tell",
        "lost 0.51 points against its own unquantized model, 0.5 points allowed:"
        " more select rows than this set could have would be needed to tell",
    )
    missed = wide.model_copy(update={"versus_unquantized": unsure(0.05, 0.01)})
    assert gate(RULES, missed, {}, quantized=True).outcome == "missed"


def test_the_second_rule_holds_a_variant_back_only_where_it_is_missed(select):
    def outcome(teacher: Difference, unquantized: Difference, strict: bool = False) -> str:
        scored = select.model_copy(update={"versus_teacher": teacher, "versus_unquantized": unquantized})
        return gate(RULES.model_copy(update={"strict": strict}), scored, {}, quantized=True)

    gained, unclear = unsure(-0.011, 0.005), unsure(0.004, 0.01)
    assert outcome(gained, unclear).outcome == "passed"
    assert outcome(gained, unclear).reasons == ()
    assert outcome(gained, unsure(0.02, 0.01)).outcome == "missed"
    assert outcome(unsure(0.012, 0.01), unclear).outcome == "undecided"  # the first rule cannot tell either
    assert outcome(gained, unclear, strict=True).outcome == "missed"


def test_few_rows_of_a_class_leave_its_recall_undecided(select):
    with_classes = RULES.model_copy(update={"max_class_drop": 0.02})
    ours = select.model_copy(update={"per_class": {"good": ClassScore(rows=60, recall=0.87)}})
    result = gate(with_classes, ours, {"good": ClassScore(rows=60, recall=0.90)}, quantized=False)
    assert result.outcome == "undecided"  # 3 % of the rows differ: a standard error of 2.2 points
    assert result.reasons[0].startswith("lost 3 points of recall on 'good', 2 points allowed: about 3,")


def test_an_undecided_variant_does_not_win_over_one_that_passed(make_report):
    report = apply_gates(undecided(make_report(), "pruned/onnx-int8", drop=0.009, error=0.003))
    verdict = report.verdicts[0]
    assert verdict.winner == "student/onnx-int8"
    assert verdict.trade.key == "pruned/onnx-int8"
    assert verdict.trade.text.startswith("just outside the gate is pruned/onnx-int8, 1")
    assert "× faster than the teacher (the winner: 9.0×)" in verdict.trade.text
    assert verdict.trade.text.endswith(
        ", which lost 0.9 points on select (undecided: about 7,000 more select rows would tell)"
    )
    assert verdict.reason == f"{verdict.why}; {verdict.trade.text}"
    assert '"trade": {' in report_json(report)
    assert verdict.trade.text in render_markdown(report)
    assert verdict.trade.text in render_html(report)
    rows = {(row["model"], row["variant"]): row["gate"] for row in ledger_table(report, "cpu").rows}
    assert rows["pruned", "onnx-int8"] == "undecided"
    assert report.remarks == ()  # the gate could not tell: that is no stage that missed it


def test_every_faster_row_that_is_held_back_says_why(make_report, latency_of):
    report = undecided(make_report(), "pruned/onnx-int8", drop=0.009, error=0.003)
    report = undecided(report, "pruned/onnx-fp32", drop=0.05, error=0.003)
    report = apply_gates(edited(report, "pruned/onnx-fp32", latency=latency_of(1.1, seed=5)))
    verdict = report.verdicts[0]
    assert [row.key for row in verdict.held_back] == ["pruned/onnx-int8", "pruned/onnx-fp32"]
    assert verdict.held_back[1].text.endswith("ms, missed: lost 5 points against the teacher, 1 point allowed")
    (line,) = held_back_lines(verdict)  # the other one is the trade
    assert line == f"held back: pruned/onnx-fp32 ({verdict.held_back[1].text})"
    assert line[1:] in render_html(report)
    assert line[1:] in render_markdown(report)


def test_many_rows_that_are_held_back_are_counted():
    rows = tuple(HeldBack(key=f"pruned/{number}", text="0.1 ms, missed: lost it") for number in range(7))
    lines = held_back_lines(Verdict(target="cpu", winner="a/b", why="it is", held_back=rows))
    assert len(lines) == 4
    assert lines[-1] == "held back: 4 more, with their reasons in the report (The gate, on select)"


def test_what_test_contradicts_stands_beside_the_verdict(make_report):
    report = make_report()
    test = report.result("pruned/onnx-int8", "cpu").test
    fell = {"bad": test.per_class["bad"].model_copy(update={"recall": 0.7, "recall_p_value": 0.001})}
    by_chance = test.per_class["good"].model_copy(update={"recall": 0.8, "recall_p_value": 0.03})  # of two classes
    changes = {"versus_teacher": unsure(0.023, 0.01), "per_class": {**fell, "good": by_chance}}
    report = apply_gates(edited(report, "pruned/onnx-int8", test=test.model_copy(update=changes)))
    verdict = report.verdicts[0]
    assert verdict.winner == "pruned/onnx-int8"
    assert verdict.contradictions == (
        "on test it lost 2.3 points against the teacher (p 0.5), 1 point allowed",
        "recall of 'bad' fell by 20.5 points on test (428 rows, p 0.001)",
    )
    for clause in verdict.contradictions:
        assert clause in verdict.reason
        assert clause in render_markdown(report)
    within = test.model_copy(update={"versus_teacher": unsure(0.012, 0.01)})  # the rows cannot tell
    assert apply_gates(edited(report, "pruned/onnx-int8", test=within)).verdicts[0].contradictions == ()


def test_where_none_passed_the_fastest_undecided_one_within_the_allowance_wins(make_report):
    keys = [row.key for row in make_report().rows if row.key != "teacher/torch-fp32"]
    report = undecided(make_report(), *keys, drop=0.009, error=0.003)
    report = apply_gates(undecided(report, "pruned/onnx-int8", drop=0.011, error=0.003))
    verdict = report.verdicts[0]
    assert verdict.winner == "student/onnx-int8"
    assert verdict.why == (
        "the fastest of 7 undecided ones (lost 0.9 points on select, 1 point allowed;"
        " about 7,000 more select rows would tell)"
    )
    assert "for 0.1 points more than allowed (undecided" in verdict.trade.text
    assert report.remarks[0].startswith("On cpu the winner is undecided, student/onnx-int8 is the fastest of 7")
    table = ledger_table(report, "cpu")
    assert table.rows[table.winner]["gate"] == "winner, undecided"
    assert "**Undecided winner on cpu: `student/onnx-int8`**" in render_markdown(report)
    assert "Undecided winner on <strong>cpu" in render_html(report)


def test_nothing_wins_where_all_undecided_ones_lost_more_than_allowed(make_report):
    keys = [row.key for row in make_report().rows if row.key != "teacher/torch-fp32"]
    report = apply_gates(undecided(make_report(), *keys, drop=0.011, error=0.003))
    verdict = report.verdicts[0]
    assert verdict.winner is None
    assert (
        "the nearest, pruned/onnx-int8, lost 1.1 points against the teacher" in verdict.why
    )  # of equal ones the fastest
    assert report.remarks[0].startswith("On cpu the gate is undecided: no variant passed")


def test_a_missed_row_within_two_allowances_is_the_best_trade(make_report, quality_of):
    near = edited(make_report(), "pruned/onnx-int8", select=quality_of(0.899, 0.913, "select", 0.901))
    trade = apply_gates(near).verdicts[0].trade
    assert trade.text.endswith(") for 0.4 points more than allowed")
    far = edited(make_report(), "pruned/onnx-int8", select=quality_of(0.88, 0.913, "select", 0.881))
    assert apply_gates(far).verdicts[0].trade is None


@pytest.mark.parametrize("rank_by", ["size", "p95"])
def test_a_trade_says_what_rows_are_ranked_by(rank_by, make_report, quality_of):
    near = make_report(rules=RULES.model_copy(update={"rank_by": rank_by}))
    near = edited(near, "pruned/onnx-int8", select=quality_of(0.899, 0.913, "select", 0.901))
    text = apply_gates(near).verdicts[0].trade.text
    unit = "MB" if rank_by == "size" else "ms"
    assert re.match(
        rf"just outside the gate is pruned/onnx-int8, [\d.]+ {unit} \(the winner: [\d.]+ {unit}\) for 0.4", text
    )


def test_a_trade_that_only_a_strict_gate_refuses_says_why(make_report):
    report = make_report(rules=RULES.model_copy(update={"strict": True}))
    keys = [row.key for row in report.rows if row.key not in ("teacher/torch-fp32", "pruned/onnx-int8")]
    report = undecided(report, *keys, drop=0.0, error=0.0)
    report = apply_gates(undecided(report, "pruned/onnx-int8", drop=0.005, error=0.01))
    text = report.verdicts[0].trade.text
    assert text.endswith("): it may have lost 2.46 points (95 % interval) against the teacher, 1 point allowed")


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


def test_what_is_nearly_as_small_does_not_win_for_that(make_report, latency_of):
    report = edited(make_report(), "student/onnx-int8", latency=latency_of(0.609, seed=11), bytes_total=14_000_000)
    assert apply_gates(report).verdicts[0].winner == "student/onnx-int8"


@pytest.mark.parametrize(("factor", "wins"), [(1.6, "pruned/onnx-int8"), (1.05, "student/onnx-int8")])
def test_an_unstable_timing_is_level_only_with_what_is_hardly_faster(factor, wins, make_report, monkeypatch):
    """Its interval reaches down to the first row's time, whatever it takes itself."""
    wide = Score(value=factor, low=0.4, high=4.0)
    monkeypatch.setattr("compress.select.winner.ratio", lambda slower, faster, part="model": wide)
    report = edited(make_report(), "student/onnx-int8", bytes_total=1_000_000)
    assert apply_gates(report).verdicts[0].winner == wins


def test_ranking_by_another_quantile(make_report, latency_of):
    ranked = make_report(rules=RULES.model_copy(update={"rank_by": "p95"}))
    assert apply_gates(ranked).verdicts[0].winner == "pruned/onnx-int8"
    few = latency_of(0.1)
    few = few.model_copy(update={"model": few.model.model_copy(update={"p99": None})})
    by_p99 = edited(make_report(rules=RULES.model_copy(update={"rank_by": "p99"})), "teacher/onnx-int8", latency=few)
    assert apply_gates(by_p99).verdicts[0].winner == "pruned/onnx-int8"


def test_ranking_by_the_time_from_text_to_answer(make_report, latency_of):
    report = make_report(rules=RULES.model_copy(update={"rank_by": "end_to_end"}))
    untimed = report.result("pruned/onnx-int8", "cpu").latency.model_copy(update={"end_to_end": None})
    fast = latency_of(5.0, seed=3)
    fast = fast.model_copy(update={"end_to_end": latency_of(0.01, seed=3).model})
    report = edited(edited(report, "pruned/onnx-int8", latency=untimed), "student/onnx-int8", latency=fast)
    assert apply_gates(report).verdicts[0].winner == "student/onnx-int8"


def budget(**limits: object) -> Rules:
    return RULES.model_copy(update={"budget": (Limits(**limits),)})


def test_a_budget_rules_rows_out(make_report):
    report = apply_gates(make_report(rules=budget(p50=5.0, size=20_000_000)))
    verdict = report.verdicts[0]
    assert verdict.winner == "pruned/onnx-int8"
    assert verdict.why.startswith("the fastest of 2 that passed the gate within the budget (")
    gates = {each.key: each.gate for each in report.results if each.gate}
    assert gates["teacher/onnx-int8"].ruled_out == ("has 23.4 MB, 20 MB allowed",)
    slow = "takes 5.15 ms (p50), 5 ms allowed"
    assert [reason.startswith("takes 5.") for reason in gates["teacher/onnx-fp32"].ruled_out] == [True, False], slow
    assert gates["teacher/onnx-fp32"].outcome == "passed"
    rows = {(row["model"], row["variant"]): row["gate"] for row in ledger_table(report, "cpu").rows}
    assert rows["teacher", "onnx-fp32"] == "ruled out"
    assert "has 91.1 MB, 20 MB allowed" in render_html(report)


def test_the_fastest_row_loses_to_one_within_the_budget_and_says_why(make_report):
    report = apply_gates(make_report(rules=RULES.model_copy(update={"budget": (Limits(smaller=3.0, p95=1.5),)})))
    assert report.verdicts[0].winner == "pruned/onnx-int8"
    limited = RULES.model_copy(update={"budget": (Limits(size=10_000_000),)})
    nothing = apply_gates(make_report(rules=limited)).verdicts[0]
    assert nothing.winner is None
    assert nothing.why == ("every variant is ruled out: the nearest, pruned/onnx-int8, has 13.9 MB, 10 MB allowed")
    both = make_report(rules=RULES.model_copy(update={"budget": (Limits(size=10_000_000, p50=0.1),)}))
    small = apply_gates(edited(both, "student/onnx-int8", bytes_total=9_000_000)).verdicts[0]
    assert small.why.startswith("every variant is ruled out: the nearest, student/onnx-int8, takes ")


def test_the_nearest_misses_the_fewest_limits_of_which_the_gate_is_one(make_report):
    limits = RULES.model_copy(update={"budget": (Limits(size=10_000_000, p50=0.1),)})
    light = edited(make_report(rules=limits), "student/onnx-int8", bytes_total=9_000_000)
    unsure = apply_gates(undecided(light, "student/onnx-int8", drop=0.011, error=0.01)).verdicts[0]
    assert "the nearest, student/onnx-int8, takes " in unsure.why
    assert unsure.why.endswith("0.1 ms allowed; its loss: undecided")
    lost_much = apply_gates(undecided(light, "student/onnx-int8", drop=0.5, error=0.01)).verdicts[0]
    assert "the nearest, pruned/onnx-int8, takes " in lost_much.why


def test_of_rows_that_miss_as_many_limits_the_nearest_exceeds_them_least(make_report):
    limits = RULES.model_copy(update={"budget": (Limits(size=100_000),)})
    report = edited(make_report(rules=limits), "student/onnx-int8", bytes_total=450_000)
    unsure = apply_gates(undecided(report, "student/onnx-int8", drop=0.011, error=0.01)).verdicts[0]
    assert "the nearest, student/onnx-int8, has 0.45 MB, 0.1 MB allowed; its loss: undecided" in unsure.why


def test_what_a_budget_rules_out_is_no_trade_and_is_held_back(make_report):
    report = edited(make_report(rules=budget(smaller=1.0)), "pruned/onnx-int8", bytes_total=99_000_000)
    verdict = apply_gates(report).verdicts[0]
    assert verdict.winner == "student/onnx-int8"
    assert verdict.trade is None
    (held,) = verdict.held_back
    assert held.key == "pruned/onnx-int8"
    assert "ms, ruled out: is 0.922 times smaller than the teacher, 1 asked for" in held.text


def test_a_budget_of_one_target_holds_there_alone(make_report):
    elsewhere = apply_gates(make_report(rules=budget(target="cuda", size=1)))
    assert elsewhere.verdicts[0].winner == "pruned/onnx-int8"
    assert apply_gates(make_report(rules=budget(target="cpu", size=1))).verdicts[0].winner is None


def test_what_is_not_known_is_not_within_a_budget(make_report):
    untimed = Latency(status="failed", reason="the process was ended by SIGKILL")
    report = edited(make_report(rules=budget(speedup=2.0, p95=9.0)), "pruned/onnx-int8", latency=untimed)
    gate = apply_gates(report).result("pruned/onnx-int8", "cpu").gate
    assert gate.ruled_out == (
        "its p95 is not known (the process was ended by SIGKILL), 9 ms allowed",
        "how many times faster than the teacher it is is not known, 2 asked for",
    )


def test_the_smallest_wins_where_rows_are_ranked_by_size(make_report):
    report = make_report(rules=RULES.model_copy(update={"rank_by": "size"}))
    verdict = apply_gates(report).verdicts[0]
    assert verdict.winner == "pruned/onnx-int8"
    assert verdict.why.startswith("the smallest of 8 that passed the gate")
    untimed = Latency(status="failed", reason="it crashed")
    failed = edited(report, "pruned/onnx-int8", latency=untimed)
    assert apply_gates(failed).verdicts[0].winner == "student/onnx-int8"


def test_the_best_wins_where_rows_are_ranked_by_score(make_report):
    report = make_report(rules=RULES.model_copy(update={"rank_by": "score"}))
    verdict = apply_gates(report).verdicts[0]
    rows = [each for each in report.results if each.select and each.key != "teacher/torch-fp32"]
    scores = {each.key: each.select.primary.value for each in rows}
    assert scores[verdict.winner] == max(scores.values())
    assert verdict.why.startswith("the best on select of 8 that passed the gate")
    limited = RULES.model_copy(update={"rank_by": "score", "budget": (Limits(size=20_000_000),)})
    small = apply_gates(make_report(rules=limited)).verdicts[0]
    assert small.winner == "student/onnx-int8"
    assert "on select, ruled out: has" in small.held_back[0].text


def test_less_is_better_where_the_score_is_an_error(make_report):
    report = make_report(rules=RULES.model_copy(update={"rank_by": "score"}))
    first = apply_gates(report).verdicts[0].winner
    best = report.result(first, "cpu")
    worse = best.select.model_copy(update={"larger_is_better": False, "primary": Score(value=9.0, low=9.0, high=9.0)})
    assert apply_gates(edited(report, first, select=worse)).verdicts[0].winner != first


@pytest.mark.parametrize(
    ("serving", "reason"),
    [
        ((ServingMemory(batch=1, peak=90_000_000),), "has 90 MB in memory, 80 MB allowed"),
        ((ServingMemory(batch=32, peak=1_000_000),), "its memory is not known, 80 MB allowed"),
        ((ServingMemory(batch=1, peak=70_000_000),), None),
    ],
)
def test_memory_is_that_of_serving_one_by_one(serving, reason, make_report):
    report = edited(make_report(rules=budget(memory=80_000_000)), "pruned/onnx-int8", serving=serving)
    gate = apply_gates(report).result("pruned/onnx-int8", "cpu").gate
    assert gate.ruled_out == ((reason,) if reason else ())


def test_a_limit_from_text_to_answer(make_report, latency_of):
    report = make_report(rules=budget(end_to_end=1.0))
    result = report.result("pruned/onnx-int8", "cpu").latency
    slow = edited(report, "pruned/onnx-int8", latency=result.model_copy(update={"end_to_end": latency_of(2.0).model}))
    (reason,) = apply_gates(slow).result("pruned/onnx-int8", "cpu").gate.ruled_out
    assert reason.endswith(" ms (end to end), 1 ms allowed")
    unknown = edited(report, "pruned/onnx-int8", latency=result.model_copy(update={"end_to_end": None}))
    (reason,) = apply_gates(unknown).result("pruned/onnx-int8", "cpu").gate.ruled_out
    assert reason == "its end to end is not known (too few calls), 1 ms allowed"


def test_rules_without_a_budget_are_stored_as_before():
    assert "memory" not in budget(size=5).model_dump(mode="json")["budget"][0]
    assert budget(memory=5).model_dump(mode="json")["budget"][0]["memory"] == 5
    assert "budget" not in RULES.model_dump(mode="json")
    assert budget(size=5).model_dump(mode="json")["budget"][0]["size"] == 5


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


def test_int8_that_saves_bytes_alone_is_no_stage_without_gain(make_report, latency_of, monkeypatch):
    report = apply_gates(edited(make_report(), "student/onnx-int8", latency=latency_of(9.9, seed=7)))
    assert [remark for remark in report.remarks if remark.startswith("onnx-int8 brought no speedup")]
    monkeypatch.setitem(RUNTIMES, "onnxruntime", replace(RUNTIMES["onnxruntime"], int8_is_faster=False))
    report = apply_gates(edited(make_report(), "student/onnx-int8", latency=latency_of(9.9, seed=7)))
    assert not [remark for remark in report.remarks if remark.startswith("onnx-int8 brought no speedup")]


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


def test_rows_that_miss_the_gate_alike_are_named_together(make_report, quality_of):
    worse, report = quality_of(0.88, 0.913, "select", 0.905), make_report()
    for key in ("student/torch-fp32", "student/onnx-fp32"):
        report = edited(report, key, select=worse)
    (warning,) = [remark for remark in apply_gates(report).remarks if remark.startswith("distill missed the gate")]
    assert "student/torch-fp32, student/onnx-fp32 lost 3.3 points" in warning


def test_a_student_that_misses_the_gate_is_told_what_helps(make_report, quality_of):
    worse = quality_of(0.88, 0.913, "select", 0.905)
    report = edited(make_report(), "student/onnx-fp32", select=worse)
    given = report.model_copy(update={"data": report.data.model_copy(update={"rows": {"unlabelled": 9}})})
    for each, hinted in ((report, True), (given, False)):
        (warning,) = [remark for remark in apply_gates(each).remarks if remark.startswith("distill missed the gate")]
        assert ("texts without labels (task.data.unlabelled)" in warning) is hinted


def test_good_report_has_no_warnings(make_report):
    assert apply_gates(make_report()).remarks == ()


def test_warnings_about_data_and_baseline(make_report, quality_of):
    report = make_report(floor=quality_of(0.90))
    report = report.model_copy(update={"data": report.data.model_copy(update={"duplicates": 12, "skipped": 1234})})
    test = report.result("pruned/onnx-int8", "cpu").test.model_copy(update={"truncated": 0.2})
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


def test_a_cascade_is_ranked_by_its_mean(make_report):
    """Its median is that of its first model, whatever the second costs."""
    report = apply_gates(make_report())
    winner = report.result("pruned/onnx-int8", "cpu").latency
    assert winner.model is not None
    times = winner.model.undelayed_means
    mean = winner.model.p50.model_copy(update={"value": 1e3, "high": 1.1e3})
    dear = winner.model.model_copy(update={"mean": mean, "undelayed_means": tuple(1e3 * time for time in times)})
    latency = winner.model_copy(update={"model": dear, "by_mean": True})
    report = apply_gates(edited(report, "pruned/onnx-int8", latency=latency))
    assert report.verdicts[0].winner != "pruned/onnx-int8"


def test_a_budget_of_time_holds_for_the_mean_of_a_cascade(make_report):
    row = apply_gates(make_report()).result("pruned/onnx-int8", "cpu")
    median = row.latency.model.p50.value
    mean = row.latency.model.p50.model_copy(update={"value": 4 * median})
    model = row.latency.model.model_copy(update={"mean": mean})
    budget = Limits(p50=2 * median)
    for by_mean in (False, True):
        latency = row.latency.model_copy(update={"model": model, "by_mean": by_mean})
        found = [*over_budget([budget], "cpu", row.model_copy(update={"latency": latency}), None)]
        slow = f"takes {mean.value:.3g} ms (mean), {budget.p50:g} ms allowed"
        assert [each.text for each in found] == ([slow] if by_mean else [])
