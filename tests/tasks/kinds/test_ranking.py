"""Ranking: lines grouped into questions, and scores that equal slow references in any order of the file."""

import numpy as np
import pytest

from compress.errors import DataError, UsageError
from compress.recipe.task_schema import Task
from compress.tasks import KINDS, Encoding, RawRow, task_info

WHERE = "train.tsv, row 17 (line 18)"
KIND = KINDS["ranking"]
TASK = Task(kind="ranking", data={"train": "a.tsv", "test": "b.tsv"}, text=("query", "candidate"))
INFO = task_info(TASK, ())


def raw_rows(*lines):
    for number, line in enumerate(lines, 1):
        yield RawRow(f"a.tsv, row {number}", dict(zip(("query", "candidate", "label", "topic"), line, strict=False)))


def read(candidates, labels):
    return KIND.read_row({"query": "q", "candidate": candidates, "label": labels}, TASK, (), WHERE)


def encode(text, pair, most):
    return Encoding([1, 2], [0, 1], truncated=False)


def sample(rows, seed, grades=2, ties=False):
    """Scores and labels of questions with different numbers of candidates, each with a right one."""
    random = np.random.default_rng(seed)
    counts = random.integers(1, 15, rows)
    scores = [random.integers(0, 4, count) if ties else random.normal(size=count) for count in counts]
    labels = [random.integers(0, grades, count).astype(float) for count in counts]
    for line in labels:
        line[random.integers(len(line))] = 1.0
    answers = KIND.predictions([np.array([score]) for line in scores for score in line], counts, [], INFO)
    return scores, labels, answers, KIND.gold([{"label": line.tolist()} for line in labels])


def slow(scores, labels):
    """Average precision, reciprocal rank and precision of one question, equal scores with wrong candidates first."""
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], labels[index]))
    hits, precisions = 0, []
    for rank, index in enumerate(order, 1):
        if labels[index] > 0:
            hits += 1
            precisions.append((hits / rank, rank))
    return sum(share for share, _ in precisions) / hits, 1 / precisions[0][1], float(labels[order[0]] > 0)


def test_lines_of_a_question_become_one_row():
    lines = raw_rows(("one", "a", "0", "x"), ("one", "b", "1", "x"), ("two", "c", "1", "y"))
    rows = list(KIND.group_lines(lines, TASK))
    assert [row.where for row in rows] == ["a.tsv, row 1", "a.tsv, row 3"]
    assert rows[0].values == {"query": "one", "candidate": ["a", "b"], "label": ["0", "1"], "topic": "x"}
    assert KIND.read_row(rows[0].values, TASK, (), rows[0].where) == {
        "text": "one",
        "candidates": ["a", "b"],
        "label": [0.0, 1.0],
    }


def test_rows_that_hold_lists_stay_as_they_are():
    lines = list(raw_rows(("one", ["a", "b"], [0, 1]), ("one", ["c"], [1])))
    assert list(KIND.group_lines(iter(lines), TASK)) == lines
    assert list(KIND.group_lines(iter(()), TASK)) == []


def test_aliases_match_other_headers():
    task = TASK.model_copy(update={"aliases": {"candidate": ("sentence",), "label": ("right",)}})
    lines = iter([RawRow("a.tsv, row 1", {"query": "one", "sentence": "a", "right": "1"})])
    (row,) = KIND.group_lines(lines, task)
    assert KIND.read_row(row.values, task, (), row.where)["candidates"] == ["a"]


def test_a_question_that_recurs_is_refused():
    lines = raw_rows(("one", "a", "1"), ("two", "b", "1"), ("one", "c", "0"))
    with pytest.raises(DataError, match=r"a\.tsv, row 3: this question occurred before") as fault:
        list(KIND.group_lines(lines, TASK))
    assert "sort the file" in fault.value.hint


@pytest.mark.parametrize(
    ("candidates", "labels", "message"),
    [
        (["a", "b"], [0, 0], "no candidate of 2 is right"),
        (["a", ""], [1, 0], "candidate 2 of 2 is empty"),
        ([], [], "the row has 0 candidates"),
    ],
)
def test_a_row_that_does_not_fit_says_where_and_how_to_leave_it_out(candidates, labels, message):
    with pytest.raises(DataError, match=message) as fault:
        read(candidates, labels)
    assert str(fault.value).startswith(WHERE)
    assert "bad_rows: skip" in fault.value.hint


@pytest.mark.parametrize(
    ("candidates", "labels", "message"),
    [
        (["a", None], [1, 0], "candidate 2 of 2 is empty"),
        (["a", "b"], [1], "the row has 2 candidates and 1 label"),
        (["a", "b"], [1, "yes"], "the label of candidate 2 is 'yes' where 0"),
        (["a", "b"], [1, -1], "the label of candidate 2 is -1"),
        (["a", "b"], [1, float("inf")], "the label of candidate 2 is inf"),
        (["a", "b"], [1, None], "the label of candidate 2 is empty"),
        ("a", [1], "is 'a' where a list, as in other rows"),
    ],
)
def test_what_is_no_row_at_all_is_refused(candidates, labels, message):
    with pytest.raises(DataError, match=message) as fault:
        read(candidates, labels)
    assert str(fault.value).startswith(WHERE)


def test_labels_may_be_grades_and_all_right():
    assert read(["a", "b", "c"], ["2", 0.5, True])["label"] == [2.0, 0.5, 1.0]


def test_one_example_per_candidate():
    row = {"text": "q", "candidates": ["a", "b"], "label": [0.0, 2.0]}
    assert KIND.collate(KIND.examples(row, INFO, encode), pad_id=0)["labels"].tolist() == [0.0, 2.0]
    assert KIND.to_input(row) == ("q", "a", "b")
    assert KIND.from_input(("q", "a"), INFO) == {"text": "q", "candidates": ["a"]}
    with pytest.raises(UsageError, match="a question and 1 or more candidates"):
        KIND.from_input("q", INFO)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_scores_are_means_over_questions(seed, ties):
    scores, labels, answers, gold = sample(50, seed, grades=3, ties=ties)
    expected = np.mean([slow(*pair) for pair in zip(scores, labels, strict=True)], axis=0)
    result = KIND.score(answers, gold, INFO)
    assert [result[name] for name in ("map", "mrr", "precision_at_1")] == pytest.approx(expected)
    assert set(result) == {metric.name for metric in KIND.metrics}
    assert KIND.correct(answers, gold).mean() == pytest.approx(result["precision_at_1"])


@pytest.mark.parametrize("seed", range(3))
def test_scores_agree_with_scikit_learn(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    scores, labels, answers, gold = sample(40, seed, grades=4)
    result = KIND.score(answers, gold, INFO)
    pairs = list(zip(labels, scores, strict=True))
    precision = [metrics.average_precision_score(line > 0, score) for line, score in pairs]
    assert result["map"] == pytest.approx(np.mean(precision))
    gains = [metrics.ndcg_score([line], [score], k=10) if len(line) > 1 else 1.0 for line, score in pairs]
    assert result["ndcg_at_10"] == pytest.approx(np.mean(gains))


def test_a_constant_scorer_is_not_rewarded_by_the_order_of_the_file():
    gold = KIND.gold([{"label": [1.0, 0.0, 0.0]}, {"label": [0.0, 1.0]}])
    answers = KIND.predictions([np.zeros(1)] * 5, [3, 2], [], INFO)
    assert KIND.score(answers, gold, INFO)["map"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert not KIND.correct(answers, gold).any()


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_candidates_changes_nothing(seed):
    scores, labels, answers, gold = sample(20, seed, ties=True)
    turned = KIND.predictions(
        [np.array([score]) for line in scores for score in line[::-1]], list(map(len, scores)), [], INFO
    )
    same = KIND.score(turned, KIND.gold([{"label": line[::-1].tolist()} for line in labels]), INFO)
    assert same == pytest.approx(KIND.score(answers, gold, INFO))


def test_draws_score_as_repeated_rows_do():
    _, _, answers, gold = sample(30, 1)
    times = np.random.default_rng(0).integers(0, 3, (4, 30)).astype(float)
    result = KIND.weighted_scores(answers, gold, INFO, times)
    for number, line in enumerate(times):
        repeated = [np.repeat(side, line.astype(int), 0) for side in (answers, gold)]
        expected = KIND.score(*repeated, INFO)
        assert {name: values[number] for name, values in result.items()} == pytest.approx(expected)


def test_predictions_as_json_and_as_descriptions():
    rows = [{"label": [0.0, 2.0, 1.0]}, {"label": [1.0] * 2}]
    answers = KIND.predictions([np.array([score]) for score in (-1.0, 0.5, 2.0, 0.0, 1.0)], [3, 2], [], INFO)
    assert np.isfinite(answers).all()
    assert KIND.to_json(answers, INFO) == [
        {"order": [2, 1, 0], "scores": [-1.0, 0.5, 2.0]},
        {"order": [1, 0], "scores": [0.0, 1.0]},
    ]
    assert KIND.describe(answers, INFO) == ["candidates 3, 2, 1", "candidates 2, 1"]
    assert KIND.describe_gold(KIND.gold(rows), INFO) == ["candidates 2, 3", "candidates 1, 2"]


def test_orders_are_compared_from_the_same_to_the_reverse():
    ours = KIND.predictions([np.array([float(score)]) for score in (3, 2, 1, 0, 7, 2, 1)], [4, 1, 2], [], INFO)
    theirs = KIND.predictions([np.array([float(score)]) for score in (0, 1, 2, 3, 5, 4, 3)], [4, 1, 2], [], INFO)
    assert KIND.distance(ours, theirs) == pytest.approx([1.0, 0.0, 0.0])
    assert KIND.distance(ours, ours) == pytest.approx([0.0] * 3)
    assert KIND.same_decision(ours, theirs).tolist() == [False, True, True]


def test_one_endless_list_is_refused():
    assert len(read(["text"] * 1000, [1] * 1000)["label"]) == 1000
    with pytest.raises(DataError, match=r"row 17 \(line 18\): the row has 1,001 candidates; 1 to 1,000 are expected"):
        read(["text"] * 1001, [1] * 1001)
