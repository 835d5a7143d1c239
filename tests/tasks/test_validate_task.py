"""Faults of a task that its settings alone show."""

import pytest

from compress.recipe.task_schema import Task
from compress.tasks.validate_task import label_problems, task_problems

FILES = {"train": "a.tsv", "test": "b.tsv"}


def faults(**settings):
    task = Task(**{"kind": "classification", "data": FILES, **settings})
    return [str(problem) for problem in task_problems(task)]


def test_a_sound_task_has_none():
    assert faults() == []
    assert faults(kind="multi_label", label=("a", "b"), labels=("x", "y")) == []
    assert faults(data={"builtin": "sentence_starts", "test_share": 0.1}) == []
    assert faults(data={"hub": "a/b", "train": "train", "test": "test"}) == []
    assert faults(long="mean", overlap=20, max_windows=4) == []
    assert faults(kind="regression", long="attention") == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "clasification"}, "task.kind: .*did you mean classification"),
        ({"metric": "spearman"}, "task.metric: classification has no metric 'spearman'"),
        ({"metric": "f1", "labels": ("a", "b", "c")}, "task.metric: f1 is for two classes"),
        ({"label": ("a", "b")}, "task.label: classification has 1 label column"),
        ({"label": ()}, "task.label: names no column"),
        ({"label": "text"}, "task.label: the column 'text' is also task.text"),
        ({"text": ("a", "a")}, "task.text: names the same column twice"),
        ({"labels": ("a", "a")}, "task.labels: names 'a' twice"),
        ({"labels": ("a",)}, "task.labels: names 1 class"),
        ({"labels": ("a", " ")}, "task.labels: a class needs a name"),
        ({"kind": "regression", "labels": ("a", "b")}, "task.labels: has no effect for regression"),
        ({"text": ("a", "b", "c")}, "task.text: classification reads 1 to 2 columns of text, got 3"),
        ({"scheme": "iob1"}, "task.scheme: has no effect for classification"),
        ({"max_answer": 5}, "task.max_answer: has no effect for classification"),
        ({"pooling": "cls"}, "task.pooling: has no effect for classification"),
        ({"negatives": "others"}, "task.negatives: has no effect for classification"),
        ({"hard_negatives": 2}, "task.hard_negatives: has no effect for classification"),
        ({"data": {**FILES, "corpus": "c.jsonl"}}, "task.data.corpus: classification searches no documents"),
        ({"kind": "regression", "soft_labels": "p"}, "task.soft_labels: has no effect for regression"),
        (
            {"kind": "similarity", "text": ("a", "b"), "soft_labels": "p"},
            "task.soft_labels: .* it is for class",
        ),
        ({"soft_labels": "p"}, "task.soft_labels: needs task.labels"),
        ({"soft_labels": ()}, "task.soft_labels: names no column"),
        ({"soft_labels": ("p", "p"), "labels": ("x", "y")}, "task.soft_labels: names the same column twice"),
        ({"soft_labels": "label", "labels": ("x", "y")}, "task.soft_labels: the column 'label' is also"),
        ({"soft_labels": ("p", "q", "r"), "labels": ("x", "y")}, "task.soft_labels: names 3 columns for 2 classes"),
        ({"overlap": 20}, "task.overlap: applies to windows, and long: cut has none"),
        ({"max_windows": 3}, "task.max_windows: applies to windows, and long: cut has none"),
        ({"long": "max", "overlap": 128}, "task.overlap: neighbouring windows of 128 tokens .* cannot share 128"),
        ({"kind": "regression", "first_label": 1}, "task.first_label: has no effect for regression"),
        ({"kind": "multi_label", "label": ("a", "b"), "labels": ("x",)}, "names 1 classes for 2 columns"),
        ({"data": {}}, "task.data.train: is missing: a file"),
        ({"data": {"hub": "a/b", "test": "test"}}, "task.data.train: is missing: .* the hub set's split"),
        ({"data": {"train": "a.tsv"}}, "task.data.test: is missing"),
        ({"data": {**FILES, "select_share": 0}}, "task.data.select: is missing"),
        ({"data": {**FILES, "train": "a.txt"}}, "task.data.train: a.txt holds texts without labels"),
        ({"data": {**FILES, "test": ["a.csv", "b.txt.gz"]}}, "task.data.test: b.txt.gz holds texts without labels"),
        ({"data": {"train": "a", "select_share": 0.5, "test_share": 0.5}}, "split off 100% of train"),
        ({"data": {"train": "a", "test_share": 0.5, "group": "label"}}, "task.data.group: is the label"),
        ({"data": {"hub": "a/b", "builtin": "sentence_starts"}}, "both a hub set and a builtin"),
        ({"data": {"builtin": "sentence_starts", "train": "a.tsv", "test_share": 0.1}}, "has its own rows"),
    ],
)
def test_problems_are_reported(settings, message):
    import re

    result = faults(**settings)
    assert any(re.search(message, line) for line in result), result


def test_queries_of_one_document_may_be_of_one_role():
    data = {"train": "a", "test_share": 0.5, "group": "positives"}
    assert faults(kind="retrieval", text=("query",), label="positives", labels=None, metric="mrr", data=data) == []


def test_all_faults_at_once():
    assert len(faults(metric="mse", label=("a", "a"), data={})) >= 4


ROWS = {"train": 1000, "test": 50}


def problems(kind="classification", metric="accuracy", contradictory=None, train=None):
    return list(label_problems(kind, metric, ROWS, contradictory or {}, {"train": train or {"a": 500, "b": 500}}))


def test_contradictory_labels_above_one_percent():
    assert problems(contradictory={"train": 10, "test": 0}) == []
    (message,) = problems(contradictory={"train": 10, "test": 4})
    assert message.startswith("4 of 50 test rows (8.0%) have the text of another row and another label")


def test_imbalance_names_classes_and_what_helps():
    assert problems(train={"a": 800, "b": 40, "c": 0}) == []
    (message,) = problems(train={"a": 820, "b": 40, "c": 140})
    assert "'a' has 820 rows of train, 'b' 40" in message
    assert "task.metric: macro_f1" in message
    assert "class_weights: balanced" in message


def test_only_what_a_kind_has_is_suggested():
    train = {"a": 998, "b": 2}
    (message,) = problems(metric="macro_f1", train=train)
    assert "macro_f1" not in message
    assert "class_weights" in message
    (message,) = problems(kind="token_classification", metric="f1", train=train)
    assert "macro_f1" in message
    assert "class_weights" not in message


def test_classes_of_a_single_row_are_named():
    (message,) = problems(train={"a": 10, "b": 1, "c": 0})
    assert message == "1 class has a single row of train ('b'), too few to learn from."
    (message,) = problems(train=dict.fromkeys("abcdef", 1))
    assert message == "6 classes have a single row of train ('a', 'b', 'c' and 3 more), too few to learn from."


def test_classes_that_are_one_but_for_their_spelling_are_named():
    (message,) = problems(train=dict.fromkeys(("0", "0.0", "1.0", "1", "a", "A ", "2", "b"), 10))
    assert message == (
        "Some classes differ only in how they are written ('0' and '0.0'; '1.0' and '1'; 'a' and 'A '):"
        " if they mean the same, write them alike."
    )
    assert problems(train=dict.fromkeys(("3.1", "3.10", "007", "7", "1e3", "1000", "1_000", "1.5", "15"), 10)) == []


def test_few_rows_to_score_on_are_named():
    (sentence,) = label_problems("classification", "accuracy", {"train": 900, "select": 2, "test": 29}, {}, {})
    assert sentence == "select has 2 rows and test has 29 rows: too few to tell models apart."
    assert not list(label_problems("classification", "accuracy", {"train": 900, "select": 30, "test": 0}, {}, {}))


@pytest.mark.parametrize("part", ["unlabelled", "train"])
def test_a_file_is_no_split_of_a_hub_set(part):
    data = {"hub": "owner/set", "train": "train", "test": "test", part: "texts.txt"}
    task = Task.model_validate({"kind": "classification", "data": data})
    (problem,) = (each for each in task_problems(task) if each.path == ("task", "data", part))
    assert "texts.txt is a file, where a split of the hub set owner/set is expected" in problem.message
