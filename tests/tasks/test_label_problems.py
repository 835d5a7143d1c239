"""What is said about labels that contradict each other, and about classes of very different size."""

from compress.tasks.label_problems import label_problems

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
