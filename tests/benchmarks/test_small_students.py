"""The goals of the comparison of small students follow from what is stored."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.defaults.real_sets import RealSet
from benchmarks.report_store import beginning
from benchmarks.small_students.small_case import Case
from benchmarks.small_students.small_page import goals, lines, page, picture
from benchmarks.small_students.small_results import TEACHER, Entry, SmallReport
from compress.measure.quality.quality_result import Difference


def entry(contestant: str, score: float, **facts: Any) -> Entry:
    return Entry(set="sst2", seed=facts.pop("seed", 0), contestant=contestant, score=score, kept=score / 0.9, **facts)


def better(value: float, p_value: float) -> Difference:
    return Difference(value=value, low=value - 0.01, high=value + 0.01, p_value=p_value, test="mcnemar")


def report(*entries: Entry) -> SmallReport:
    teacher = entry(TEACHER, 0.9, megabytes=90.0, milliseconds=20.0, end_to_end=21.0, faster=1.0)
    return SmallReport(**beginning("command", trial=False), rows=100, entries=(teacher, *entries))


def outcomes(made: SmallReport) -> dict[str, str]:
    return {goal["goal"].partition(",")[0]: goal["outcome"] for goal in goals(made)}


FAST = {"faster": 450.0, "faster_end_to_end": 90.0, "megabytes": 2.0, "milliseconds": 0.04, "end_to_end": 0.2}


def test_a_goal_of_speed_holds_for_a_student_that_keeps_the_score() -> None:
    kept = outcomes(report(entry("static/numpy-int8", 0.88, **FAST)))
    assert kept["static 400 times faster"] == "met"
    assert kept["static 100 times faster from text"] == "missed"
    assert kept["static a 40th of the size"] == "met"
    lost = outcomes(report(entry("static/numpy-int8", 0.80, **FAST)))
    assert lost["static 400 times faster"] == "missed"
    assert lost["static a 40th of the size"] == "missed"  # small, and nothing keeps the score


def test_every_seed_must_beat_model2vec() -> None:
    seeds = [entry("static-2/numpy-fp32", 0.88, seed=seed, versus_model2vec=better(0.02, 0.01)) for seed in (0, 1)]
    beaten = {goal["goal"]: goal["reached"] for goal in goals(report(*seeds))}
    assert beaten["static better than model2vec, paired"] == "1 of 1"
    other = entry("static-2/numpy-fp32", 0.88, seed=2, versus_model2vec=better(0.02, 0.2))
    beaten = {goal["goal"]: goal["reached"] for goal in goals(report(*seeds, other))}
    assert beaten["static better than model2vec, paired"] == "0 of 1"


def test_cascades_may_lose_a_standard_error_more_than_allowed() -> None:
    lossy = [entry("static-then-teacher/cascade", 0.88, seed=seed, loss=0.02, error=0.005) for seed in range(3)]
    fine = [entry("conv-then-teacher/cascade", 0.89, seed=seed, loss=0.012, error=0.005) for seed in range(12)]
    name = "loss on test at most a standard error over the allowance"
    assert outcomes(report(*fine))[name] == "met"
    assert outcomes(report(*fine, *lossy))[name] == "missed"


def test_the_page_has_what_ran_and_why_the_rest_did_not() -> None:
    made = report(
        entry("static-2/numpy-int8", 0.88, **FAST),
        entry("static-2-then-student/cascade", 0.89, loss=0.01, error=0.005, faster=50.0, milliseconds=0.4),
        Entry(set="sst2", seed=0, contestant="fastText", reason="no wheel"),
    )
    text = page(made)
    assert "static, wide, then half the layers" in text
    assert "sst2/0/fastText: no wheel" in text
    assert next(line["student"] for line in lines(made, "sst2")) == "teacher"
    drawing = picture(made, "sst2")
    assert drawing is not None
    assert "<svg" in drawing


def test_a_set_with_texts_uses_as_many_labels_and_leaves_the_transformer_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = RealSet({}, {"name": "sst2"})
    monkeypatch.setattr("benchmarks.small_students.small_case.SETS", {"sst2": files})
    plain, more = (Case(name, 0, tmp_path, 4000, trial=False).recipe() for name in ("sst2", "sst2_texts"))
    assert plain["task"]["data"] == {"limit": 4000}
    assert more["task"]["data"] == {"limit": 20_000, "labelled": 4000}
    assert [each for each in plain["student"] if "kind" in each] == more["student"]
    assert {each["then"] for each in more["cascade"]} == {"teacher"}


def test_sets_with_texts_are_compared_with_model2vec_by_themselves() -> None:
    won = entry("static-2/numpy-fp32", 0.88, versus_model2vec=better(0.02, 0.01))
    made = report(won, *(each.model_copy(update={"set": f"{each.set}_texts"}) for each in (won,)))
    on = [goal["on"] for goal in goals(made) if "model2vec" in goal["goal"]]
    assert on == ["2 of 3 sets", "sets with more texts"]
