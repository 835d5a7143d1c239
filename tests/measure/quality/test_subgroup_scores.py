import numpy as np
import pytest

from compress.errors import UsageError
from compress.measure import BootstrapScorer, score_model
from compress.measure.quality.score_model import MAX_VALUES, MIN_ROWS, by_column, by_length, score_groups
from compress.model_folder.model_info import TaskInfo
from compress.tasks import KINDS
from compress.tasks.kinds.token_classification import PREDICTION

CLASSES = TaskInfo(name="t", kind="classification", text=("text",), labels=("a", "b"), metric="accuracy", max_length=8)


def sizes(groups):
    return {group.name: len(group.rows) for group in groups}


def test_lengths_are_grouped_by_quartiles():
    lengths = np.random.default_rng(0).permutation(np.arange(10, 110))
    groups = by_length(lengths)
    assert sizes(groups) == {"10-34 pieces": 25, "35-59 pieces": 25, "60-84 pieces": 25, "85-109 pieces": 25}
    assert sorted(np.concatenate([group.rows for group in groups]).tolist()) == list(range(100))
    assert lengths[groups[0].rows].max() < lengths[groups[1].rows].min()


def test_equal_lengths_share_a_group():
    assert sizes(by_length([8] * 90 + [9, 10, 11])) == {"8 pieces": 90, "9-11 pieces": 3}
    assert sizes(by_length([128] * 40)) == {"128 pieces": 40}


def test_column_values_are_ordered_by_frequency():
    groups = by_column(["web"] * 3 + ["book"] * 5 + ["web"] * 4 + ["(empty)"])
    assert [(group.name, group.rows.tolist()) for group in groups] == [
        ("web", [0, 1, 2, 8, 9, 10, 11]),
        ("book", [3, 4, 5, 6, 7]),
        ("(empty)", [12]),
    ]


def test_rare_values_share_a_group():
    values = [f"user {number}" for number in range(50) for _ in range(60 - number)]
    groups = by_column(values)
    assert len(groups) == MAX_VALUES + 1
    assert groups[0].name == "user 0"
    assert groups[-1].name == "30 other values"
    assert sum(sizes(groups).values()) == len(values)


def test_many_numbers_become_ranges():
    groups = by_column([*map(str, range(1900, 2000)), "(empty)"])
    assert sizes(groups) == {
        "1900 to 1924": 25,
        "1925 to 1949": 25,
        "1950 to 1974": 25,
        "1975 to 1999": 25,
        "(empty)": 1,
    }
    assert by_column([*map(str, range(1900, 2000)), "nan"])[-1].name == "81 other values"
    assert [group.name for group in by_column(list("12123"))] == ["1", "2", "3"]


@pytest.fixture
def scored():
    random = np.random.default_rng(0)
    gold = random.integers(0, 2, 300)
    answers = np.where(random.random(300) < 0.8, gold, 1 - gold)
    teacher = np.where(random.random(300) < 0.9, gold, 1 - gold)
    return np.eye(2)[answers], np.eye(2)[teacher], gold


def test_slice_scores_equal_those_of_its_rows(scored):
    answers, teacher, gold = scored
    values = ["x" if row % 3 else "y" for row in range(300)]
    kind = KINDS["classification"]
    result = score_groups(BootstrapScorer(kind, CLASSES, 200), by_column(values), answers, gold, teacher)
    assert [score.name for score in result] == ["x", "y"]
    for score in result:
        rows = np.flatnonzero(np.array(values) == score.name)
        alone = score_model(
            kind, CLASSES, answers[rows], gold[rows], teacher_answers=teacher[rows], role="select", resampling=200
        )
        assert (score.rows, score.primary, score.versus_teacher) == (len(rows), alone.primary, alone.versus_teacher)


def test_too_few_rows_have_no_score_but_a_reason(scored):
    answers, _, gold = scored
    values = ["x"] * (MIN_ROWS - 1) + ["y"] * (301 - MIN_ROWS)
    few = score_groups(BootstrapScorer(KINDS["classification"], CLASSES, 100), by_column(values), answers, gold)[1]
    assert (few.name, few.rows, few.primary, few.reason) == ("x", 29, None, "fewer than 30 rows")


def test_correlation_is_undefined_for_one_value(scored):
    answers, _, gold = scored
    task = CLASSES.model_copy(update={"metric": "matthews"})
    groups = by_column([str(value) for value in gold])
    result = score_groups(BootstrapScorer(KINDS["classification"], task, 100), groups, answers, gold)
    assert {score.primary for score in result} == {None}
    assert result[0].reason == "matthews is undefined where every row has the same answer"
    plain = score_groups(BootstrapScorer(KINDS["classification"], CLASSES, 100), groups, answers, gold)
    assert all(score.primary is not None for score in plain)


def test_sentences_without_entities_agree_at_any_length():
    task = CLASSES.model_copy(update={"kind": "token_classification", "labels": ("O", "B-x", "I-x"), "metric": "f1"})
    gold = np.zeros((2 * MIN_ROWS, 3), np.int16)
    gold[::2, 2] = -1  # shorter by a word
    gold[MIN_ROWS:, 0] = 1
    answers = np.zeros(gold.shape, PREDICTION)
    answers["tag"] = gold
    values = ["none"] * MIN_ROWS + ["one"] * MIN_ROWS
    none, one = score_groups(BootstrapScorer(KINDS[task.kind], task, 50), by_column(values), answers, gold)
    assert none.reason == "f1 is undefined where every row has the same answer"
    assert one.primary.value == 1.0


def test_slices_of_other_rows_are_refused(scored):
    answers, _, gold = scored
    with pytest.raises(UsageError, match="the slices have 2 rows and 300 were scored"):
        score_groups(BootstrapScorer(KINDS["classification"], CLASSES, 100), by_column(["x", "y"]), answers, gold)
