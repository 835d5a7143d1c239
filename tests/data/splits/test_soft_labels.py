"""Probabilities in rows of train: every way to write them, what becomes of them, and what is refused."""

import json

import numpy as np
import pytest

from compress.data.encode import encode_rows
from compress.data.loading.file_columns import check_columns
from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.data.tokenizer import TextTokenizer
from compress.errors import DataError

TEST = "text\tlabel\na\tx\nb\ty\n"


@pytest.fixture
def prepared(write, task_of, tmp_path):
    """Prepares a train file with labelled select and test files; returns the roles."""

    def make(train, name="train.jsonl", **settings):
        task = task_of(
            train=write(name, train),
            select=write("select.tsv", TEST),
            test=write("test.tsv", TEST),
            **{"labels": ("x", "y"), "soft_labels": "p", **settings},
        )
        check_columns(task)
        folder = tmp_path / "prepared"
        folder.mkdir()
        prepare_splits(task, 0, folder)
        return load_prepared(folder)

    return make


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def probabilities(roles):
    return [pytest.approx(row["soft_labels"]) for row in roles.rows("train")]


def two(first, second):
    return lines({"text": "a", "p": first}, {"text": "b", "p": second})


@pytest.mark.parametrize(
    ("name", "train", "settings"),
    [
        ("t.jsonl", two([0.75, 0.25], [0.0, 1.0]), {}),
        ("t.jsonl", two({"y": 0.25, "x": 0.75}, {"x": 0, "y": 1}), {}),
        ("t.tsv", "text\tp\na\t0.75 0.25\nb\t0 1\n", {}),
        ("t.csv", 'text,p\na,"[0.75, 0.25]"\nb,"{""y"": 1.0, ""x"": 0.0}"\n', {}),
        ("t.csv", "text,px,py\na,0.75,0.25\nb,0,1\n", {"soft_labels": ("px", "py")}),
    ],
)
def test_soft_labels_in_every_notation(prepared, name, train, settings):
    roles = prepared(train, name, **settings)
    assert probabilities(roles) == [[0.75, 0.25], [0.0, 1.0]]
    assert [row["label"] for row in roles.rows("train")] == [0, 1]
    assert [row["labelled"] for row in roles.rows("train")] == [False, False]
    assert roles.info.guessed == 2
    assert roles.rows("test")[0] == {"text": "a", "text_pair": None, "label": 0}


def test_a_parquet_file(prepared, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"text": ["a", "b"], "p": [[0.75, 0.25], [0.0, 1.0]]})
    parquet.write_table(table, tmp_path / "p.parquet")
    assert probabilities(prepared((tmp_path / "p.parquet").read_bytes(), "t.parquet")) == [[0.75, 0.25], [0.0, 1.0]]


def test_a_true_label_stays_with_soft_labels(prepared):
    rows = [{"text": "a", "label": "y", "p": [0.75, 0.25]}, {"text": "b", "label": 0, "p": [0.4, 0.6]}]
    roles = prepared(lines(*rows))
    assert [(row["label"], row["labelled"]) for row in roles.rows("train")] == [(1, True), (0, True)]
    assert roles.info.guessed == 0


def test_rows_may_have_no_label(prepared):
    roles = prepared(lines({"text": "a", "label": "y", "p": [0.7, 0.3]}, {"text": "b", "p": [0.7, 0.3]}))
    assert [(row["label"], row["labelled"]) for row in roles.rows("train")] == [(1, True), (0, False)]


def test_small_errors_of_rounding_are_divided_away(prepared):
    result = prepared(two([0.3333, 0.6663], [1.0000001, 0.0])).rows("train")
    assert all(sum(row["soft_labels"]) == pytest.approx(1.0, abs=1e-12) for row in result)
    assert result[0]["soft_labels"][0] == pytest.approx(0.3333 / 0.9996)


def test_one_probability_per_class(prepared, write, task_of, tmp_path):
    test = write("m.jsonl", lines({"text": "a", "label": ["x"]}, {"text": "b", "label": ["y"]}))
    train = write("n.jsonl", two([0.9, 0.8], [0.5, 0.1]))
    task = task_of(train=train, select=test, test=test, kind="multi_label", labels=("x", "y"), soft_labels="p")
    prepare_splits(task, 0, tmp_path)
    rows = load_prepared(tmp_path).rows("train")
    assert [row["soft_labels"] for row in rows] == [[0.9, 0.8], [0.5, 0.1]]
    assert [row["label"] for row in rows] == [[1.0, 1.0], [1.0, 0.0]]


def test_columns_of_classes_without_labels(write, task_of, tmp_path):
    test = write("m.csv", "text,sun,rain\na,1,0\nb,0,1\n")
    train = write("n.csv", "text,psun,prain\na,.9,.8\nb,.2,.7\n")
    settings = {"kind": "multi_label", "label": ("sun", "rain"), "soft_labels": ("psun", "prain")}
    prepare_splits(task_of(train=train, select=test, test=test, **settings), 0, tmp_path)
    assert [row["label"] for row in load_prepared(tmp_path).rows("train")] == [[1.0, 1.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ([0.5, 0.4], r"row 2 \(line 2\): the probabilities of all classes sum to 0.9, expected 1"),
        ([-0.1, 1.1], "the probability of 'x' is -0.1 where a number between 0 and 1"),
        ([0.0, 1.5], "the probability of 'y' is 1.5 where a number between 0 and 1"),
        ([1.0], "column 'p' holds 1 number where a probability for each of 2 classes is expected .x, y."),
        (0.7, "holds 1 number where"),
        ([0.2, 0.3, 0.5], "holds 3 numbers where"),
        ({"x": 1.0}, "column 'p' names the classes x where x, y are expected"),
        ({"x": 0.5, "y": 0.4, "z": 0.1}, "column 'p' names the classes x, y, z where x, y are"),
        (["much", 0.5], "the probability of 'x' is 'much' where a number is expected"),
        ([True, False], "the probability of 'x' is True where a number is expected"),
        ([None, 1.0], "the probability of 'x' is empty"),
        ([float("nan"), 1.0], "the probability of 'x' is empty"),
        ([float("inf"), 1.0], "the probability of 'x' is inf where a number"),
        (None, "column 'p' is empty where a probability for each class is expected"),
        ("  ", "column 'p' is empty"),
        ("[0.5, 0.5", "column 'p' holds '.0.5, 0.5', which is no JSON"),
        ([[0.5], 0.5], "the probability of 'x' is .0.5. where a number is expected"),
    ],
)
def test_invalid_distributions_are_refused_with_their_location(prepared, cell, message):
    with pytest.raises(DataError, match=message) as refused:
        prepared(two([0.5, 0.5], cell))
    assert "row 2" in str(refused.value)


def test_bad_rows_can_be_left_out(prepared):
    train = lines(*({"text": str(index), "p": cell} for index, cell in enumerate([[0.9, 0.1], [0.1, 0.9], [2, 0]])))
    info = prepared(train, bad_rows="skip").info
    assert (info.counts["train"], info.skipped) == (2, 1)
    assert "the probability of 'x' is 2" in info.first_skipped


def test_a_missing_column_is_named(prepared):
    with pytest.raises(DataError, match="there is no column 'q'") as refused:
        prepared(two([0.5, 0.5], [1, 0]), soft_labels="q")
    assert "task.soft_labels names the column" in refused.value.hint


def test_an_empty_label_with_soft_labels_is_an_error(prepared):
    with pytest.raises(DataError, match=r"row 1 .* the label is empty"):
        prepared("text\tlabel\tp\na\t\t1 0\nb\tx\t0 1\n", "t.tsv")


def test_rows_without_a_true_label_are_not_held_back(write, task_of, tmp_path):
    train = write("t.jsonl", two([0.5, 0.5], [0.1, 0.9]))
    task = task_of(train=train, test=write("e.tsv", TEST), labels=("x", "y"), soft_labels="p")
    for attempt in (lambda: check_columns(task), lambda: prepare_splits(task, 0, tmp_path)):
        with pytest.raises(DataError, match=r"no label .label., and select would be split off train"):
            attempt()


def test_batches_hold_them(prepared, word_folder):
    roles = prepared(
        lines({"text": "a", "label": "y", "p": [0.7, 0.3]}, {"text": "b c", "p": [0.2, 0.8]}, {"text": "", "p": [1, 0]})
    )
    encoded = encode_rows(roles.rows("train"), roles.info.task_info, TextTokenizer.load(word_folder))
    batch = encoded.batch([2, 0, 1])
    np.testing.assert_allclose(batch["soft_labels"], [[1.0, 0.0], [0.7, 0.3], [0.2, 0.8]], rtol=1e-6)
    assert batch["labelled"].tolist() == [0.0, 1.0, 0.0]
    assert batch["labels"].tolist() == [0, 1, 1]
    assert batch["soft_labels"].dtype == batch["labelled"].dtype == np.float32


def test_windows_of_a_row_share_them(prepared, word_folder):
    roles = prepared(two([0.5, 0.5], [1, 0]), long="mean", max_length=6, overlap=1)
    rows = [{**roles.rows("train")[0], "text": "a b c d e " * 4}, roles.rows("train")[1]]
    encoded = encode_rows(rows, roles.info.task_info, TextTokenizer.load(word_folder))
    batch = encoded.batch(range(len(encoded)))
    assert len(encoded) > 3
    np.testing.assert_array_equal(batch["soft_labels"], [[0.5, 0.5]] * (len(encoded) - 1) + [[1.0, 0.0]])
