"""Values of columns for the rows of test: the same rows, in the same order, as were prepared."""

import json

import numpy as np
import pytest

from compress.console import Console
from compress.data.loading.file_columns import check_columns
from compress.data.loading.row_sources import LONGEST, slice_values, value_name
from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.errors import DataError
from compress.tasks.validate_task import task_problems

QUIET = Console("quiet")


def table(count):
    lines = [f"text {number}\t{'ab'[number % 2]}\tgenre {number}" for number in range(count)]
    return "text\tlabel\tgenre\n" + "\n".join(lines) + "\n"


def in_step(task, folder):
    """Whether every value belongs to its row: both hold the row's number."""
    roles = load_prepared(folder)
    rows, result = roles.rows("test"), slice_values(task, roles.test_numbers(), QUIET)["genre"]
    return [value.removeprefix("genre ") for value in result] == [row["text"].removeprefix("text ") for row in rows]


def test_values_of_a_test_file(write, task_of, tmp_path):
    task = task_of(train=write("t.tsv", table(10)), test=write("e.tsv", table(6)), slices="genre")
    prepare_splits(task, 0, tmp_path)
    assert in_step(task, tmp_path)


@pytest.mark.parametrize(
    "more", [{"test_share": 0.2}, {"test_share": 0.2, "limit": 7}, {"test_share": 0.1, "select_share": 0.3}]
)
def test_values_of_rows_held_back_from_train(write, task_of, tmp_path, more):
    task = task_of(train=write("t.tsv", table(100)), slices=["genre"], **more)
    prepare_splits(task, 3, tmp_path)
    assert in_step(task, tmp_path)


def test_values_under_a_limit(write, task_of, tmp_path):
    task = task_of(train=write("t.tsv", table(50)), test=write("e.tsv", table(40)), limit=9, slices=("genre",))
    assert prepare_splits(task, 1, tmp_path).counts["test"] == 9
    assert in_step(task, tmp_path)


def test_values_where_rows_were_left_out(write, task_of, tmp_path):
    lines = [f"text {number}\t{'' if number % 5 == 0 else 'ab'[number % 2]}\tgenre {number}\n" for number in range(60)]
    file = write("t.tsv", "text\tlabel\tgenre\n" + "".join(lines))
    task = task_of(train=file, test_share=0.4, bad_rows="skip", slices="genre")
    assert prepare_splits(task, 0, tmp_path).skipped == 12
    assert in_step(task, tmp_path)


def test_rows_stay_as_they_are(write, task_of, tmp_path):
    path = write("t.tsv", table(10))
    prepare_splits(task_of(train=path, test=path, slices="genre"), 0, tmp_path)
    assert set(load_prepared(tmp_path).rows("test")[0]) == {"text", "text_pair", "label"}


def test_names_of_values():
    assert value_name(3.0, "c", "row 1") == "3"
    assert value_name(True, "c", "row 1") == "true"
    assert value_name("  a \n b ", "c", "row 1") == "a b"
    assert {value_name(value, "c", "row 1") for value in (None, "", " ", float("nan"))} == {"(empty)"}
    assert len(value_name("x" * 500, "c", "row 1")) == LONGEST
    with pytest.raises(DataError, match=r"row 1: column 'c' holds a list where task\.slices expects one value"):
        value_name(["x"], "c", "row 1")


def test_a_list_in_a_column_names_file_and_row(write, task_of):
    rows = "".join(json.dumps({"text": "x", "label": "a", "tags": tags}) + "\n" for tags in ("one", ["two"]))
    task = task_of(train=write("t.jsonl", rows), test=write("e.jsonl", rows), slices="tags")
    with pytest.raises(DataError, match=r"e\.jsonl, row 2 \(line 2\): column 'tags' holds a list"):
        slice_values(task, np.arange(2), QUIET)


def test_a_missing_column_is_reported_before_anything_runs(write, task_of):
    train, test = write("t.tsv", "text\tlabel\nx\ta\n"), write("e.tsv", table(4))
    check_columns(task_of(train=train, test=test, slices="genre"))
    with pytest.raises(DataError, match=r"e\.tsv, row 1 .*no column 'gener'.*did you mean genre") as caught:
        check_columns(task_of(train=train, test=test, slices="gener"))
    assert caught.value.hint.startswith("task.slices names the column;")
    assert "task.text" not in caught.value.hint
    with pytest.raises(DataError, match=r"t\.tsv, row 1 .*no column 'genre'"):
        check_columns(task_of(train=train, test_share=0.5, slices="genre"))


def test_data_that_changed_since_it_was_prepared_is_refused(write, task_of):
    task = task_of(train=write("t.tsv", table(10)), test=write("e.tsv", table(6)), slices="genre")
    with pytest.raises(DataError, match="'genre' has 6 values for 7 rows of test: the data changed"):
        slice_values(task, np.arange(7), QUIET)


def test_invalid_slices_are_refused(task_of):
    faults = [str(fault) for fault in task_problems(task_of(train="t.tsv", test="e.tsv", slices=["text", "c", "c"]))]
    assert faults == [
        "task.slices: names the same column twice",
        "task.slices: the column 'text' is also task.text or task.label",
    ]


def test_class_numbers_of_a_hub_set_become_names(task_of, monkeypatch):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.Value("int64"),
            "genre": datasets.ClassLabel(names=["fiction", "travel"]),
        }
    )
    rows = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1], "genre": [1, 0]}, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows)
    task = task_of(hub="owner/set", train="train", test="validation", labels=("no", "yes"), slices="genre")
    assert slice_values(task, np.arange(2), QUIET) == {"genre": ["travel", "fiction"]}
