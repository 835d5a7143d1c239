"""Rows whose answers changed, and those on which model and teacher differ most, of every kind of task."""

import numpy as np
import pytest

from compress.model_folder.model_info import TaskInfo
from compress.report.pages.comparison_page import CHANGES, changed_rows, rows_page
from compress.report.pages.rows_page import disagreements, write_rows_page
from compress.report.report_schema import ROWS_PAGE
from compress.tasks import KINDS
from compress.tasks.kinds.question_answering import prediction_fields
from compress.tasks.kinds.token_classification import PREDICTION
from tests.report.pages.test_render import Balanced

TASK = TaskInfo(
    name="films", kind="classification", text=("text",), labels=("bad", "good"), metric="accuracy", max_length=32
)
ROWS = [{"text": f"text {number}", "text_pair": None} for number in range(3)]


def case(kind):  # noqa: PLR0911
    """A task of a kind, its rows and labels, and the answers of two models that differ in some of them."""
    task = TASK.model_copy(update={"kind": kind, "metric": KINDS[kind].metrics[0].name})
    numbers = np.array([1.0, 2.0, 3.0], np.float32)
    if kind == "classification":
        return task, ROWS, np.array([0, 1, 0]), np.eye(2)[[0, 1, 1]], np.eye(2)[[0, 0, 0]]
    if kind == "multi_label":
        gold = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
        return task, ROWS, gold, gold * 0.9, np.array([[0.9, 0.0], [0.9, 0.1], [0.9, 0.9]], np.float32)
    if kind in ("regression", "similarity"):
        rows = [{"text": "one", "text_pair": "other"}] * 3
        task = task.model_copy(update={"labels": (), "range": (0.0, 4.0)})
        scale = 1.0 if kind == "regression" else 0.25
        return task, rows, numbers, numbers * scale, np.array([1.0, 3.0, 0.0], np.float32) * scale
    if kind == "token_classification":
        task = task.model_copy(update={"labels": ("O", "B-city", "I-city")})
        rows = [{"words": ["to", "New", "York"], "label": [0, 1, 2]}] * 2
        before, after = np.zeros((2, 3), PREDICTION), np.zeros((2, 3), PREDICTION)
        before["tag"], after["tag"] = [[0, 1, 2], [0, 1, 2]], [[0, 1, 2], [0, 1, 0]]
        before["probability"] = after["probability"] = 0.9
        return task, rows, np.array([[0, 1, 2]] * 2, np.int16), before, after
    if kind == "question_answering":
        rows = [{"question": "when?", "context": "in 1984 or so", "answers": ["1984"], "start": 3}] * 2
        before, after = np.zeros(2, prediction_fields(10)), np.zeros(2, prediction_fields(10))
        for each in (before, after):
            each["text"], each["answered"], each["probability"] = "1984", True, 0.75
        after["text"][1] = "or so"
        return task.model_copy(update={"labels": ()}), rows, KINDS[kind].gold(rows), before, after
    task = task.model_copy(update={"labels": ()})
    if kind == "multiple_choice":
        rows = [{"text": "which?", "choices": ["one", "two"], "label": 0}] * 2
        return task, rows, np.array([0, 0]), np.array([[0.9, 0.1]] * 2), np.array([[0.9, 0.1], [0.2, 0.8]])
    if kind == "ranking":
        rows = [{"text": "which?", "candidates": ["one", "two"], "label": [1.0, 0.0]}] * 2
        answers = np.array([[0.9, 0.2], [0.9, 0.1]], np.float32)
        return task, rows, KINDS[kind].gold(rows), answers, answers[:, ::-1].copy()
    pytest.skip(f"{kind} is asked with its corpus, in the test of a whole run")
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_changed_answers_and_disagreements(kind, tmp_path):
    task, rows, gold, before, after = case(kind)
    names = ("first", "second")
    changed = changed_rows(KINDS[kind], task, rows, gold, before, after, names=names, target="cpu")
    assert 1 <= changed.changed <= len(rows)
    assert len(changed.rows) == changed.changed
    assert all(row.change in (*CHANGES, "changed") for row in changed.rows)
    assert all(row.texts and row.label and all(row.answers) for row in changed.rows)
    same = changed_rows(KINDS[kind], task, rows, gold, before, before, names=names, target="cpu")
    assert (same.changed, same.rows) == (0, ())
    Balanced().feed(rows_page(names, [changed]))
    found = disagreements(KINDS[kind], task, rows, gold, after, before, model="a/b", targets=("cpu",))
    if KINDS[kind].distance(after, before) is not None:
        assert {row.row for row in found.rows} >= {row.row for row in changed.rows if row.change != "changed"}
    write_rows_page(tmp_path, "films", [], [found])
    Balanced().feed((tmp_path / ROWS_PAGE).read_text(encoding="utf-8"))


def test_what_became_wrong_comes_first():
    task, rows, gold, before, after = case("classification")
    changed = changed_rows(KINDS["classification"], task, rows, gold, before, after, names=("a", "b"), target="cpu")
    assert [(row.row, row.change) for row in changed.rows] == [(1, "now wrong"), (2, "now right")]
