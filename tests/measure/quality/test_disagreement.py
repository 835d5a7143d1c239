import numpy as np
import pytest

from compress.measure.quality.score_model import largest_disagreements
from compress.model_folder.model_info import TaskInfo
from compress.tasks import KINDS

CLASSES = TaskInfo(name="t", kind="classification", text=("text",), labels=("no", "yes"), metric="f1", max_length=8)
OURS = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0.6, 0.4]])
TEACHERS = np.array([[0.9, 0.1], [0.4, 0.6], [0.9, 0.1], [0.5, 0.5]])
GOLD = np.array([0, 1, 0, 1])


def test_different_decisions_come_first_and_rounding_is_ignored():
    ours = np.array([[0.51, 0.49], [0.9, 0.1], [0.9, 0.1], [0.7, 0.3]])
    teachers = np.array([[0.49, 0.51], [0.6, 0.4], [0.90007, 0.09993], [0.74, 0.26]])
    result = largest_disagreements(KINDS["classification"], CLASSES, ours, teachers, GOLD)
    assert [each.row for each in result] == [0, 1]
    assert largest_disagreements(KINDS["classification"], CLASSES, ours[2:], teachers[2:], GOLD[2:]) == ()


def test_score_distances_use_their_spread():
    task = CLASSES.model_copy(update={"kind": "regression", "labels": (), "metric": "mse"})
    gold = np.array([0.0, 100.0, 50.0])
    result = largest_disagreements(KINDS["regression"], task, gold + np.array([1.0, 5.0, 0.0]), gold, gold)
    assert [each.row for each in result] == [1]


def test_cosine_distances_use_the_spread_of_labels():
    task = CLASSES.model_copy(update={"kind": "similarity", "labels": (), "metric": "spearman", "range": (0.0, 100.0)})
    gold, teachers = np.array([0.0, 100.0, 50.0]), np.array([0.0, 1.0, 0.5])
    result = largest_disagreements(KINDS["similarity"], task, teachers + np.array([0.01, -0.05, 0.0]), teachers, gold)
    assert [each.row for each in result] == [1]


def test_largest_distances_come_first_without_equal_predictions():
    result = largest_disagreements(KINDS["classification"], CLASSES, OURS, TEACHERS, GOLD)
    assert [each.row for each in result] == [2, 1, 3]
    assert result[0].model_dump() == {
        "row": 2,
        "distance": pytest.approx(0.7),
        "ours": "yes (80 %)",
        "teachers": "no (90 %)",
        "gold": "no",
    }


def test_disagreements_are_limited_and_sorted():
    random = np.random.default_rng(0)
    ours, theirs = random.normal(size=(2, 200)).round(1)
    task = CLASSES.model_copy(update={"kind": "regression", "labels": (), "metric": "mse"})
    result = largest_disagreements(KINDS["regression"], task, ours, theirs, ours, most=20)
    slow = sorted(range(200), key=lambda row: (-abs(ours[row] - theirs[row]), row))[:20]
    assert [each.row for each in result] == slow


def test_a_kind_without_distances_has_no_disagreements():
    class Mute:
        def distance(self, answers, others):
            return None

    assert largest_disagreements(Mute(), CLASSES, OURS, TEACHERS, GOLD) == ()
