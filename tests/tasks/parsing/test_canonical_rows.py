"""Raw rows to canonical ones: every wrong value is an error with its location."""

from itertools import permutations

import pytest

from compress.errors import DataError
from compress.recipe.task_schema import Task
from compress.tasks import KINDS

WHERE = "train.tsv, row 17 (line 18)"


def task_of(kind="classification", **more):
    return Task(kind=kind, data={"train": "a.tsv"}, **more)


def read(raw, labels=("bad", "good"), **more):
    task = task_of(**more)
    return KINDS[task.kind].read_row(raw, task, labels, WHERE)


def labels_of(values, **more):
    task = task_of(**more)
    return KINDS[task.kind].labels(iter(values), task)


def test_a_row_holds_text_and_the_index_of_its_label():
    assert read({"text": "fine", "label": "good", "id": 3}) == {"text": "fine", "text_pair": None, "label": 1}


def test_a_pair_holds_both_texts():
    row = read({"q": "one", "a": "two", "label": "bad"}, text=("q", "a"))
    assert (row["text"], row["text_pair"]) == ("one", "two")


def test_aliases_replace_missing_columns_only():
    aliases = {"label": ("Quality", "gold")}
    assert read({"text": "x", "gold": "good"}, aliases=aliases)["label"] == 1
    assert read({"text": "x", "gold": "good", "label": "bad"}, aliases=aliases)["label"] == 0


def test_a_missing_column_names_row_columns_and_the_nearest():
    with pytest.raises(DataError) as fault:
        read({"text": "x", "lable": "good"})
    assert str(fault.value).startswith(WHERE)
    assert "'text', 'lable'" in str(fault.value)
    assert "did you mean lable?" in str(fault.value)


def test_messages_shorten_a_wide_header():
    with pytest.raises(DataError) as fault:
        read({f"{'column' * 40}{number}": "x" for number in range(100)})
    assert len(str(fault.value)) < 1500
    assert "and 80 more" in str(fault.value)


@pytest.mark.parametrize("value", [None, 5, 1.5, ["x"], {}])
def test_text_must_be_text(value):
    with pytest.raises(DataError, match="where text is expected"):
        read({"text": value, "label": "good"})


def test_half_a_character_is_refused():
    with pytest.raises(DataError, match="half a character"):
        read({"text": "a\ud800b", "label": "good"})


@pytest.mark.parametrize("value", [None, "", "  ", float("nan")])
def test_an_empty_label_is_refused(value):
    with pytest.raises(DataError, match=r"row 17.*the label is empty"):
        read({"text": "x", "label": value})


def test_an_unseen_label_names_the_nearest():
    with pytest.raises(DataError, match="label 'god' is not among those of train; did you mean good"):
        read({"text": "x", "label": "god"})


@pytest.mark.parametrize(("value", "index"), [("1", 1), (0, 0), (1.0, 1), (True, 1), ("good", 1)])
def test_a_number_is_an_index_where_the_recipe_names_the_classes(value, index):
    task = task_of(labels=("bad", "good"))
    assert KINDS["classification"].read_row({"text": "x", "label": value}, task, task.labels, WHERE)["label"] == index


def test_a_number_is_no_index_where_train_gave_the_classes():
    with pytest.raises(DataError, match="label '0' is not among"):
        read({"text": "x", "label": 0}, labels=("1", "2"))


def test_a_number_is_no_index_where_classes_are_numbers():
    with pytest.raises(DataError, match="label '0' is not among those of the recipe's labels"):
        KINDS["classification"].read_row({"text": "x", "label": "0"}, task_of(labels=("1", "2")), ("1", "2"), WHERE)


def test_counting_from_one():
    task = task_of(labels=("a", "b", "c"), first_label=1)
    assert KINDS["classification"].read_row({"text": "x", "label": "3"}, task, task.labels, WHERE)["label"] == 2
    with pytest.raises(DataError, match="label 0 is none of 1 to 3"):
        KINDS["classification"].read_row({"text": "x", "label": "0"}, task, task.labels, WHERE)


def test_a_class_too_far_suggests_counting_from_one():
    task = task_of(labels=("a", "b"))
    with pytest.raises(DataError) as fault:
        KINDS["classification"].read_row({"text": "x", "label": 2}, task, task.labels, WHERE)
    assert "first_label: 1" in fault.value.hint


def test_minus_one_is_reported_as_unlabelled():
    task = task_of(labels=("a", "b"))
    with pytest.raises(DataError) as fault:
        KINDS["classification"].read_row({"text": "x", "label": -1}, task, task.labels, WHERE)
    assert "without a label" in fault.value.hint


def test_names_that_are_equal_as_numbers_have_one_order():
    assert all(labels_of(names) == ("+7", "007", "7") for names in permutations(("7", "007", "+7")))


def test_classes_are_ordered_by_number_or_name():
    assert labels_of(["10", "9", "9", None, ""]) == ("9", "10")
    assert labels_of([2.0, 1, "3"]) == ("1", "2", "3")
    assert labels_of(["b", "a", "b"]) == ("a", "b")
    assert labels_of([True, False]) == ("false", "true")


@pytest.mark.parametrize(
    ("values", "message"), [(["a", "a"], "only the class 'a'"), ([], "no label"), ([None], "no label")]
)
def test_one_class_alone_is_refused(values, message):
    with pytest.raises(DataError, match=message):
        labels_of(values)


def test_scores_are_no_classes():
    with pytest.raises(DataError, match="numbers with fractions"):
        labels_of(["2.5", "3.75", "5.0", "1"])


def test_a_list_is_no_class():
    with pytest.raises(DataError, match="where one class is expected") as fault:
        labels_of([["a"], ["b"]])
    assert "multi_label" in fault.value.hint
    assert labels_of([["a"], "a", "b\ud83d", "c"]) == ("a", "c")
    with pytest.raises(DataError, match=r"row 17 \(line 18\): the label is a list or mapping"):
        read({"text": "x", "label": ["good"]})


def test_several_labels_from_lists_and_from_json_in_a_cell():
    labels = labels_of([["b", "a"], '["c"]', []], kind="multi_label")
    assert labels == ("a", "b", "c")
    assert read({"text": "x", "label": ["c", "a"]}, labels, kind="multi_label")["label"] == [1.0, 0.0, 1.0]
    assert read({"text": "x", "label": '["b"]'}, labels, kind="multi_label")["label"] == [0.0, 1.0, 0.0]
    assert read({"text": "x", "label": []}, labels, kind="multi_label")["label"] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("value", [None, "", "a, b", "a|b", 3, "[a", '{"a": 1}'])
def test_what_is_no_list_of_classes_is_refused(value):
    with pytest.raises(DataError, match="row 17"):
        read({"text": "x", "label": value}, ("a", "b"), kind="multi_label")


def test_several_columns_of_zero_and_one():
    task = {"kind": "multi_label", "label": ("toxic", "rude")}
    assert labels_of([], **task) == ("toxic", "rude")
    row = {"text": "x", "toxic": "1", "rude": 0.0}
    assert read(row, ("toxic", "rude"), **task)["label"] == [1.0, 0.0]
    for wrong in ("2", "yes", None, 0.5, ""):
        with pytest.raises(DataError, match="where 0 or 1 is expected"):
            read({**row, "rude": wrong}, ("toxic", "rude"), **task)


@pytest.mark.parametrize(("value", "score"), [("2.5", 2.5), (3, 3.0), ("-1e-2", -0.01)])
def test_scores(value, score):
    assert read({"text": "x", "label": value}, (), kind="regression")["label"] == score


@pytest.mark.parametrize(
    "value", [None, "", "high", "nan", "inf", float("nan"), True, [1], 10**400, "1_5", "1e39", -1e39]
)
def test_what_is_no_finite_number_is_no_score(value):
    with pytest.raises(DataError, match="row 17"):
        read({"text": "x", "label": value}, (), kind="regression")


def test_a_row_counts_for_all_of_its_classes():
    assert list(KINDS["classification"].row_classes({"label": 2})) == [2]
    assert list(KINDS["multi_label"].row_classes({"label": [1.0, 0.0, 1.0]})) == [0, 2]
    assert list(KINDS["regression"].row_classes({"label": 2.0})) == []
