"""From files to roles: what is held back, what is counted, what is refused."""

import json
import tempfile

import numpy as np
import pytest

from compress.console import Console
from compress.data.loading import part_rows, row_sources
from compress.data.loading.file_columns import check_columns, missing_columns
from compress.data.loading.raw_rows import file_rows
from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.data.splits.row_store import StoredRows
from compress.data.splits.split_indices import TooFewGroups, assign_roles, automatic_share, random_keys
from compress.errors import DataError
from compress.tasks.parsing.columns import column_names


def table(count, classes="ab", start=0):
    lines = [f"text {number}\t{classes[number % len(classes)]}" for number in range(start, start + count)]
    return "text\tlabel\n" + "\n".join(lines) + "\n"


def texts(folder, role):
    return [row["text"] for row in load_prepared(folder).rows(role)]


def test_three_files(write, task_of, tmp_path):
    task = task_of(
        train=write("t.tsv", table(10)), select=write("s.tsv", table(4, start=100)), test=write("e.tsv", table(6))
    )
    info = prepare_splits(task, 0, tmp_path)
    assert info.counts == {"train": 10, "select": 4, "test": 6}
    assert info.labels == ("a", "b")
    assert info.per_class["train"] == {"a": 5, "b": 5}
    assert (info.duplicates, info.select_duplicates, info.held_back) == (6, 0, ())
    roles = load_prepared(tmp_path)
    assert roles.info == info
    assert roles.rows("train")[3] == {"text": "text 3", "text_pair": None, "label": 1}


def test_select_and_test_are_held_back(write, task_of, tmp_path):
    task = task_of(train=write("t.tsv", table(200)), test_share=0.1)
    info = prepare_splits(task, 0, tmp_path)
    assert info.counts == {"train": 144, "select": 36, "test": 20}  # 20 % of what test leaves
    assert info.held_back == ("select", "test")
    result = [set(texts(tmp_path, role)) for role in ("train", "select", "test")]
    assert len(set.union(*result)) == 200
    assert info.duplicates == 0


@pytest.mark.parametrize(
    ("count", "share"),
    [
        (100, 0.2),
        (5452, 0.2),  # 9,000 rows are needed
        (60_000, 0.15),
        (600_000, 0.05),
    ],
)
def test_the_automatic_share_depends_on_rows_alone(count, share):
    assert automatic_share(count) == pytest.approx(share)
    assert automatic_share(10 * count, left=0.5) <= 0.1


IDENTIFIED = "id,text,label,topic\n" + "".join(
    f"{number},text {number},{'ab'[number % 2]},{'xyz'[number % 3]}\n" for number in range(40)
)


@pytest.mark.parametrize("has_test", [False, True])
def test_a_label_that_identifies_rows_is_named_with_other_columns(write, task_of, tmp_path, has_test):
    file, test = write("t.csv", IDENTIFIED), write("e.csv", "id,text,label,topic\n99,text,a,x\n")
    more = {"test": test, "select": test} if has_test else {"test_share": 0.1}
    with pytest.raises(DataError, match=r"'id' has 40 values in 40 rows: it identifies rows and is no class") as error:
        prepare_splits(task_of(train=file, label="id", **more), 0, tmp_path)
    assert "columns with few values are 'label' (2), 'topic' (3)" in error.value.hint
    assert prepare_splits(task_of(train=file, test_share=0.1), 0, tmp_path).counts["select"] == 7


def test_rows_that_do_not_fit_are_counted(write, task_of, tmp_path):
    lines = [f"text {number}\t{'' if number in (3, 5, 9) else 'ab'[number % 2]}\n" for number in range(20)]
    file = write("t.tsv", "text\tlabel\n" + "".join(lines))
    with pytest.raises(
        DataError, match=r"row 4 .*: the label is empty\. It is the first of 3 rows, of 20, that"
    ) as error:
        prepare_splits(task_of(train=file, test_share=0.1), 0, tmp_path)
    assert "task.data.bad_rows: skip" in error.value.hint
    once = write("o.tsv", "text\tlabel\n" + "".join(lines[:5] + lines[6:9] + lines[10:]))
    with pytest.raises(DataError, match=r"row 4 .*: the label is empty\.$"):
        prepare_splits(task_of(train=once, test_share=0.1), 0, tmp_path)


def test_the_recipe_decides_the_rows_of_select(write, task_of, tmp_path):
    task = task_of(train=write("t.tsv", table(200)), test=write("e.tsv", table(4)))
    assert prepare_splits(task, 0, tmp_path).counts["select"] == 40
    fixed = task_of(train=write("t.tsv", table(200)), test=write("e.tsv", table(4)), select_share=0.3)
    assert prepare_splits(fixed, 0, tmp_path).counts["select"] == 60


def test_a_file_is_read_once_however_many_roles_come_from_it(write, task_of, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(part_rows, "file_rows", lambda path, *rest: read.append(path) or file_rows(path, *rest))
    file = write("t.tsv", table(200))
    prepare_splits(task_of(train=file, test_share=0.1, limit=50, labelled=30), 0, tmp_path)
    assert read == [file]


def test_the_seed_decides_what_is_held_back(write, task_of, tmp_path):
    task = task_of(train=write("t.tsv", table(100)), test=write("e.tsv", table(4)))
    held = []
    for index, seed in enumerate((0, 0, 1)):
        folder = tmp_path / str(index)
        folder.mkdir()
        prepare_splits(task, seed, folder)
        held.append(texts(folder, "select"))
    assert held[0] == held[1] != held[2]


def test_four_rows_still_give_a_select_row(write, task_of, tmp_path):
    task = task_of(train=write("t.tsv", table(6)), test=write("e.tsv", table(4)))
    assert prepare_splits(task, 0, tmp_path).counts["select"] == 1


def test_a_limit_takes_rows_from_all_over_a_sorted_file(write, task_of, tmp_path):
    rows = "text\tlabel\n" + "".join(f"x {number}\t{'ab'[number // 500]}\n" for number in range(1000))
    path = write("t.tsv", rows)
    info = prepare_splits(task_of(train=path, test=path, limit=40), 0, tmp_path)
    assert info.counts == {"train": 40, "select": 40, "test": 40}
    assert min(info.per_class["train"].values()) > 8


def test_several_files_a_role(write, task_of, tmp_path):
    train = [str(write("1.tsv", table(4))), str(write("2.jsonl", '{"text": "x", "label": "b"}\n'))]
    info = prepare_splits(task_of(train=train, test=write("e.tsv", table(4))), 0, tmp_path)
    assert info.counts["train"] + info.counts["select"] == 5


def test_a_label_that_train_lacks_names_file_and_row(write, task_of, tmp_path):
    task = task_of(train=write("t.tsv", table(10)), test=write("e.tsv", table(3, "abc")))
    with pytest.raises(DataError, match=r"e\.tsv, row 3 \(line 4\): label 'c' is not among those of train"):
        prepare_splits(task, 0, tmp_path)


def test_a_named_class_that_train_lacks(write, task_of, tmp_path):
    task = task_of(train=write("t.tsv", table(10)), test=write("e.tsv", table(3, "abc")), labels=("a", "b", "c"))
    with pytest.raises(DataError, match=r"test \(.*e\.tsv\) has rows of 'c' \(1\), and train has none"):
        prepare_splits(task, 0, tmp_path)


def test_all_classes_that_only_test_has_are_named_with_their_rows(write, task_of, tmp_path):
    task = task_of(train=write("t.tsv", table(10)), test=write("e.tsv", table(9, "abcdd")))
    with pytest.raises(DataError, match=r"e\.tsv\) has 5 such rows, of 'd' \(3\), 'c' \(2\)\.") as error:
        prepare_splits(task, 0, tmp_path)
    assert "add rows of it to train" in error.value.hint
    assert error.value.exit_code == 1
    skipping = task.model_copy(update={"data": task.data.model_copy(update={"bad_rows": "skip"})})
    assert prepare_splits(skipping, 0, tmp_path).counts["test"] == 4


def test_a_class_that_test_spells_otherwise_is_named_with_that_of_train(write, task_of, tmp_path):
    train = write("t.tsv", table(10).replace("\ta", "\t1.0").replace("\tb", "\t2.0"))
    test = write("e.tsv", table(4).replace("\ta", "\t1").replace("\tb", "\tz"))
    with pytest.raises(DataError, match="has 4 such rows") as error:
        prepare_splits(task_of(train=train, test=test), 0, tmp_path)
    assert error.value.hint.startswith("train has '1.0' for '1': write them alike; a model cannot predict")


def test_f1_of_more_than_two_classes_is_refused(write, task_of, tmp_path):
    task = task_of(train=write("t.tsv", table(9, "abc")), test=write("e.tsv", table(9, "abc")), metric="f1")
    with pytest.raises(DataError, match="f1 is for two classes, and train has 3") as error:
        prepare_splits(task, 0, tmp_path)
    assert error.value.hint == "metric: macro_f1"


def test_a_line_that_cannot_be_read_ends_no_question(write, task_of, tmp_path):
    rows = [f"q {number // 3}\tt {number}\t{int(number % 3 == 0)}" for number in range(30)]
    path = write("t.tsv", "\n".join(["query\ttext\tlabel", *rows[:10], "q 3", *rows[10:]]) + "\n")
    columns = {"text": ("query", "text"), "label": "label", "kind": "ranking"}
    info = prepare_splits(task_of(train=path, select=path, test=path, bad_rows="skip", **columns), 0, tmp_path)
    assert (info.counts["test"], info.skipped) == (10, 3)
    assert all(len(row["candidates"]) == 3 for row in load_prepared(tmp_path).rows("test"))


def test_equal_sentences_with_other_tags_are_counted(write, task_of, tmp_path):
    line = '{"tokens": ["in", "Rome"], "tags": ["O", "%s"]}\n'
    train, test = write("t.jsonl", line % "B-place" * 3 + line % "O"), write("e.jsonl", line % "O" + line % "B-place")
    task = task_of(train=train, select=test, test=test, kind="token_classification", text="tokens", label="tags")
    info = prepare_splits(task, 0, tmp_path)
    assert info.contradictory == {"train": 4, "select": 2, "test": 2}


def test_tags_that_only_test_has_are_named(write, task_of, tmp_path):
    train = write("t.jsonl", '{"tokens": ["in", "Rome"], "tags": ["O", "B-place"]}\n' * 4)
    test = write("e.jsonl", '{"tokens": ["on", "Monday"], "tags": ["O", "B-day"]}\n' * 2)
    task = task_of(train=train, test=test, kind="token_classification", text="tokens", label="tags")
    with pytest.raises(DataError, match=r"has 2 such rows, of 'B-day' \(2\)"):
        prepare_splits(task, 0, tmp_path)


def test_one_row_per_class(write, task_of, tmp_path):
    train = write("t.tsv", table(6, "abcdef"))
    with pytest.raises(DataError, match=r"select has no rows left: .*the last row of a class stays") as error:
        prepare_splits(task_of(train=train, test=train), 0, tmp_path)
    assert error.value.hint == "name a file of labelled rows in task.data.select"
    info = prepare_splits(task_of(train=train, select=train, test=train), 0, tmp_path)
    assert set(info.per_class["train"].values()) == {1}


@pytest.mark.parametrize("seed", range(5))
def test_a_split_leaves_a_row_of_each_class_in_train(seed, write, task_of, tmp_path):
    content = table(60) + "".join(f"rare {label}{number}\t{label}\n" for label in "cde" for number in range(2))
    info = prepare_splits(task_of(train=write("t.tsv", content), test_share=0.5), seed, tmp_path)
    assert min(info.per_class["train"].values()) >= 1
    assert info.counts == {"train": 26, "select": 7, "test": 33}


def test_equal_texts_with_different_labels_are_counted(write, task_of, tmp_path, capsys):
    train = write("t.tsv", table(10) + "text 0\ta\ntext 0\tb\ntext 1\tb\n")
    test = write("e.tsv", table(4, start=50))
    info = prepare_splits(task_of(train=train, select=test, test=test), 0, tmp_path, Console("human"))
    assert info.contradictory == {"train": 3, "select": 0, "test": 0}
    assert "3 of 13 train rows (23.1%) have the text of another row and another label" in capsys.readouterr().err
    select = write("s.tsv", "text\tlabel\ntext 2\ta\ntext 3\ta\ntext 60\ta\n")
    info = prepare_splits(task_of(train=train, select=select, test=test), 0, tmp_path)
    assert info.contradictory == {"train": 4, "select": 1, "test": 0}  # text 3 is b in train
    scores = write("r.tsv", "text\tlabel\nx\t1\nx\t2\n")
    info = prepare_splits(task_of(train=scores, select=scores, test=scores, kind="regression"), 0, tmp_path)
    assert info.contradictory["train"] == 0  # people rate a text differently


def test_heavy_imbalance_is_reported(write, task_of, tmp_path, capsys):
    path = write("t.tsv", table(42, "a") + "x\tb\ny\tb\n")
    prepare_splits(task_of(train=path, select=path, test=path), 0, tmp_path, Console("human"))
    assert "'a' has 42 rows of train, 'b' 2; accuracy hardly depends on" in capsys.readouterr().err


@pytest.mark.parametrize("labels", [None, ("a", "b")])
def test_one_class_only(write, task_of, tmp_path, labels):
    task = task_of(train=write("t.tsv", table(10, "a")), test=write("e.tsv", table(3, "a")), labels=labels)
    with pytest.raises(DataError, match="at least two"):
        prepare_splits(task, 0, tmp_path)


@pytest.mark.parametrize(("metric", "is_refused"), [("matthews", True), ("accuracy", False)])
def test_one_class_in_test(write, task_of, tmp_path, metric, is_refused, capsys):
    files = {"train": write("t.tsv", table(10)), "test": write("e.tsv", table(3, "a"))}
    task = task_of(**files, metric=metric)
    if not is_refused:
        prepare_splits(task, 0, tmp_path)
        return
    with pytest.raises(DataError, match=r"e.tsv.*its labels are all the same: matthews cannot distinguish models"):
        prepare_splits(task, 0, tmp_path)
    prepare_splits(task_of(**files, metric=metric, limit=9), 0, tmp_path, Console("human"))
    assert "its labels are all the same" in capsys.readouterr().err


def test_objects_without_the_label_are_rows_without_a_label(write, task_of, tmp_path):
    lines = [{"text": f"text {n}", **({"label": "ab"[n % 2]} if n % 5 else {})} for n in range(40)]
    path = write("t.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    assert not list(missing_columns(task_of(train=path)))
    info = prepare_splits(task_of(train=path, select=path, test=path, bad_rows="skip"), 0, tmp_path)
    assert (info.counts["train"], info.skipped) == (32, 24)
    with pytest.raises(DataError, match=r"row 1 .*there is no column 'label'.*8 rows"):
        prepare_splits(task_of(train=path, select=path, test=path), 0, tmp_path)
    wrong = write("w.jsonl", '{"text": "a", "lable": "b"}\n' * 9)
    with pytest.raises(DataError, match="there is no column 'label'; the columns are 'text', 'lable'; did you mean"):
        prepare_splits(task_of(train=wrong, select=wrong, test=wrong), 0, tmp_path)
    other = write("o.jsonl", "".join(f'{{"text": "{n}"}}\n' for n in range(9)))
    assert [missing.exit_code for missing in missing_columns(task_of(train=other))] == [2]


def test_a_class_that_looks_like_a_missing_value_is_named(write, task_of, tmp_path, capsys):
    path = write("t.tsv", table(10) + "x\tNA\ny\tNA\n")
    prepare_splits(task_of(train=path, select=path, test=path), 0, tmp_path, Console("human"))
    assert "The class 'NA' (2 rows of train) may be a missing value" in " ".join(capsys.readouterr().err.split())


def test_one_class_under_a_limit(write, task_of, tmp_path):
    with pytest.raises(DataError, match="all labels are the same") as refused:
        prepare_splits(task_of(train=write("t.tsv", table(10)), test=write("e.tsv", table(3)), limit=1), 0, tmp_path)
    assert refused.value.hint == "task.data.limit, or --smoke, takes 1 row of it: others may have other labels"


def test_one_score_only(write, task_of, tmp_path):
    path = write("t.tsv", table(10, "3"))
    with pytest.raises(DataError, match="all labels are the same"):
        prepare_splits(task_of(train=path, test=path, kind="regression"), 0, tmp_path)


@pytest.mark.parametrize(
    ("kind", "columns", "row"),
    [
        ("multiple_choice", ("question", "choices", "answer"), {"choices": ["sun", "rain"], "answer": "A"}),
        ("ranking", ("query", "candidate", "label"), {"candidate": ["sun", "rain"], "label": [1, 0]}),
        ("token_classification", ("tokens", "tags"), {"tokens": ["in", "Rome"], "tags": ["O", "B-place"]}),
    ],
)
def test_rows_with_right_and_wrong_items_may_have_equal_labels(write, task_of, tmp_path, kind, columns, row):
    *text, label = columns
    content = "".join(json.dumps({text[0]: f"what {number} ?", **row}) + "\n" for number in range(8))
    path = write("t.jsonl", content)
    task = task_of(train=path, test=path, kind=kind, text=text, label=label)
    assert prepare_splits(task, 0, tmp_path).counts["train"] == 6


def test_candidates_that_are_all_right(write, task_of, tmp_path):
    lines = "".join(f"query {number}\ta text\t1\n" for number in range(8))
    path = write("t.tsv", "query\tcandidate\tlabel\n" + lines)
    with pytest.raises(DataError, match="at least two"):
        prepare_splits(task_of(train=path, test=path, kind="ranking", text=("query", "candidate")), 0, tmp_path)


def test_one_document_for_all_queries(write, task_of, tmp_path):
    path = write("t.tsv", "query\tpositives\n" + "".join(f"query {number}\ta text\n" for number in range(8)))
    with pytest.raises(DataError, match="at least two"):
        prepare_splits(task_of(train=path, test=path, kind="retrieval", text="query", label="positives"), 0, tmp_path)


def test_too_few_rows_to_split_any_off(write, task_of, tmp_path):
    task = task_of(train=write("t.tsv", table(2)), test_share=0.1)
    with pytest.raises(DataError, match="has no rows left"):
        prepare_splits(task, 0, tmp_path)


def test_task_problems_are_reported_before_reading(task_of, tmp_path):
    with pytest.raises(DataError, match=r"task\.data\.train: is missing[\s\S]*task\.data\.test: is missing"):
        prepare_splits(task_of(), 0, tmp_path)


def test_duplicates_and_empty_texts_are_reported(write, task_of, tmp_path, capsys):
    train = write("t.tsv", table(10) + "\ta\n")
    prepare_splits(task_of(train=train, select=train, test=train), 0, tmp_path, Console("human"))
    output = capsys.readouterr().err
    assert "11 of 11 test rows have a text that is also in train" in output
    assert "3 rows with an empty text" in output


def test_a_text_of_white_space_alone_is_empty(write, task_of, tmp_path, capsys):
    train = write("t.tsv", table(10) + "  \ta\n")
    prepare_splits(task_of(train=train, select=train, test=train), 0, tmp_path, Console("human"))
    assert "3 rows with an empty text" in capsys.readouterr().err


def test_a_row_with_too_many_fields_is_refused_or_skipped(write, task_of, tmp_path):
    path = write(
        "t.csv", "text,label\n" + "".join(f"text {number},{'ab'[number % 2]}\n" for number in range(10)) + "x,y,a\n"
    )
    task = task_of(train=path, test=path, kind="classification")
    with pytest.raises(DataError, match=r"row 11 \(line 12\) has 3 fields where 2 are expected") as error:
        prepare_splits(task, 0, tmp_path)
    assert "task.data.bad_rows: skip" in error.value.hint
    info = prepare_splits(
        task.model_copy(update={"data": task.data.model_copy(update={"bad_rows": "skip"})}), 0, tmp_path
    )
    assert (info.counts["test"], info.skipped) == (10, 2)
    assert "has 3 fields" in info.first_skipped


def test_an_empty_second_text_is_reported_too(write, task_of, tmp_path, capsys):
    path = write("p.tsv", "one\ttwo\tlabel\nx\t\ta\ny\tz\tb\n")
    task = task_of(train=path, select=path, test=path, text=("one", "two"))
    prepare_splits(task, 0, tmp_path, Console("human"))
    assert "3 rows with an empty text" in capsys.readouterr().err


def test_multi_label_and_regression(write, task_of, tmp_path):
    path = write(
        "t.jsonl", '{"text": "x", "label": ["a"]}\n{"text": "y", "label": []}\n{"text": "z", "label": ["a", "b"]}\n'
    )
    info = prepare_splits(task_of(train=path, select=path, test=path, kind="multi_label"), 0, tmp_path)
    assert info.per_class["test"] == {"a": 2, "b": 1}
    path = write("r.tsv", "text\tlabel\nx\t1.5\ny\t2\n")
    info = prepare_splits(task_of(train=path, select=path, test=path, kind="regression"), 0, tmp_path)
    assert info.per_class == {}
    assert [row["label"] for row in load_prepared(tmp_path).rows("test")] == [1.5, 2.0]


def test_columns_can_be_checked_alone(write, task_of):
    good, bad = write("t.tsv", table(3)), write("e.tsv", "text\tlable\nx\ta\n")
    check_columns(task_of(train=good, test=good))
    with pytest.raises(DataError, match=r"e\.tsv, row 1 .*no column 'label'.*did you mean lable"):
        check_columns(task_of(train=good, test=bad))


def test_rows_are_a_sequence(write, task_of, tmp_path):
    prepare_splits(task_of(train=write("t.tsv", table(10)), test=write("e.tsv", table(6, start=50))), 0, tmp_path)
    rows = load_prepared(tmp_path).rows("test")
    assert (len(rows), rows[-1]["text"], [row["text"] for row in rows[1:3]]) == (6, "text 55", ["text 51", "text 52"])
    assert len(list(rows)) == 6
    with pytest.raises(IndexError):
        rows[6]


def test_prepared_data_that_was_damaged(write, task_of, tmp_path):
    with pytest.raises(DataError, match="holds no prepared data"):
        load_prepared(tmp_path)
    prepare_splits(task_of(train=write("t.tsv", table(10)), test=write("e.tsv", table(6))), 0, tmp_path)
    (tmp_path / "rows.jsonl").write_bytes((tmp_path / "rows.jsonl").read_bytes()[:-5])
    with pytest.raises(DataError, match="changed or truncated"):
        load_prepared(tmp_path).rows("test")
    (tmp_path / "select.rows.npy").unlink()
    with pytest.raises(DataError, match="cannot be read"):
        StoredRows(tmp_path, "select")
    (tmp_path / "data.json").write_text(json.dumps({"counts": 3}))
    with pytest.raises(DataError, match="cannot be read"):
        load_prepared(tmp_path)


@pytest.mark.parametrize("count", [1, 2, 19, 1000])
def test_every_row_has_one_role(count):
    marks = assign_roles(count, 3, {"select": 0.05, "test": 0.2}, None, "train")
    assert np.stack(list(marks.values())).sum(axis=0).tolist() == [1] * count
    assert marks["select"].sum() == max(1, round(0.05 * count))


def test_a_split_without_rare_classes_is_the_random_order():
    free, limited = (assign_roles(50, 3, {"select": 0.1}, None, "train", rare=rare) for rare in ({}, {7: [0], 9: [0]}))
    assert np.array_equal(free["select"], limited["select"])
    first = int(np.flatnonzero(free["select"])[0])
    limited = assign_roles(50, 3, {"select": 0.1}, None, "train", rare={first: [0]})
    assert not limited["select"][first]
    assert limited["select"].sum() == 5


def test_random_keys_look_random():
    numbers = random_keys(10_000, 7)
    assert len(set(numbers.tolist())) == 10_000
    assert np.mean(numbers / 2**64) == pytest.approx(0.5, abs=0.02)
    assert not np.array_equal(numbers, random_keys(10_000, 8))


@pytest.mark.parametrize("odd", ["news", '[["a"]]'])
def test_a_cell_without_classes_is_refused_with_its_location_or_skipped(write, task_of, tmp_path, odd):
    rows = [{"text": f"text {number}", "label": ["ab"[number % 2]]} for number in range(10)]
    rows.insert(3, {"text": "x", "label": odd})
    path = write("t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    task = task_of(train=path, test=path, kind="multi_label")
    with pytest.raises(DataError, match=r"t\.jsonl, row 4"):
        prepare_splits(task, 0, tmp_path)
    info = prepare_splits(
        task.model_copy(update={"data": task.data.model_copy(update={"bad_rows": "skip"})}), 0, tmp_path
    )
    assert (info.labels, info.counts["test"], info.skipped) == (("a", "b"), 10, 2)


@pytest.mark.parametrize("test", ["e.tsv", "s.tsv"])
def test_skipping_every_row_is_an_error_with_count_and_first_fault(write, task_of, tmp_path, test):
    write("s.tsv", table(10))
    write("e.tsv", table(3, "c"))
    task = task_of(
        train=tmp_path / "s.tsv", test=tmp_path / test, kind="classification", labels=("a", "b"), bad_rows="skip"
    )
    if test == "e.tsv":
        with pytest.raises(DataError, match=r"test .*no rows left: 3 rows of test .*: .*e\.tsv, row 1.*label 'c'"):
            prepare_splits(task, 0, tmp_path)
    else:
        task = task.model_copy(update={"labels": ("x", "y")})
        with pytest.raises(DataError, match=r"train .*no rows left: 10 rows of train .*: .*s\.tsv, row 1"):
            prepare_splits(task, 0, tmp_path)


HALF = "\\ud83d"


CHOICES = {"kind": "multiple_choice", "text": ["question", "choices"], "label": "answer"}


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (f'{{"text": "a", "label": "b{HALF}"}}', {}),
        (f'{{"question": "q", "choices": ["a", "b{HALF}"], "answer": 0}}', CHOICES),
        ('{"question": "q", "choices": {"text": ["a", "b"], "label": 5}, "answer": 0}', CHOICES),
    ],
)
def test_half_a_character_is_a_row_that_cannot_be_read(line, options, write, task_of, tmp_path):
    path = write("t.jsonl", f"{line}\n" * 9)
    with pytest.raises(DataError, match=r"half a character|the labels of the choices"):
        prepare_splits(task_of(train=path, select=path, test=path, **options), 0, tmp_path)


def test_a_slice_of_half_a_character_has_a_name():
    json.dumps(row_sources.value_name("\ud83d", "source", "row 1"), ensure_ascii=False).encode()


def test_a_first_row_that_cannot_be_read_is_left_out_too(write, task_of, tmp_path):
    path = write("t.csv", "text,label\na,b,c,d\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(20)))
    task = task_of(train=path, select=path, test=path, bad_rows="skip")
    assert not list(missing_columns(task))
    assert prepare_splits(task, 0, tmp_path).skipped == 3
    alone = write("o.csv", "text,label\na,b,c,d\n")
    with pytest.raises(DataError, match="has 4 fields where 2 are expected"):
        prepare_splits(task_of(train=alone, select=path, test=path, bad_rows="skip"), 0, tmp_path)


@pytest.mark.parametrize("label", [f'"b{HALF}"', '["a"]', '{"a": 1}'])
def test_a_label_that_is_no_class_is_left_out_or_named(write, task_of, tmp_path, label):
    lines = [f'{{"text": "{n}", "label": {label if n == 7 else json.dumps("ab"[n % 2])}}}\n' for n in range(40)]
    task = task_of(train=write("t.jsonl", "".join(lines)), test_share=0.2, select_share=0.2, bad_rows="skip")
    info = prepare_splits(task, 0, tmp_path)
    assert (info.labels, info.skipped) == (("a", "b"), 1)
    assert "t.jsonl, row 8 (line 8): the label" in info.first_skipped
    with pytest.raises(DataError, match=r"t\.jsonl, row 8 \(line 8\): the label"):
        prepare_splits(
            task.model_copy(update={"data": task.data.model_copy(update={"bad_rows": "refuse"})}), 0, tmp_path
        )


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("multi_label", "set task.metric: subset_accuracy"),
        ("regression", "set task.metric: mse"),
        ("similarity", "give rows with other labels too"),
    ],
)
def test_labels_without_variety_ask_for_a_metric_of_the_kind(write, task_of, tmp_path, kind, hint):
    rows = [{"text": f"{n}", "other": "x", "label": ["a"] if kind == "multi_label" else 0.5} for n in range(4)]
    varied = [*rows, {**rows[0], "label": ["b"] if kind == "multi_label" else 1.0}]
    train, same = (
        write(name, "".join(json.dumps(row) + "\n" for row in part))
        for name, part in (("t.jsonl", varied), ("s.jsonl", rows))
    )
    text = ("text", "other") if kind == "similarity" else ("text",)
    with pytest.raises(DataError, match="its labels are all the same") as error:
        prepare_splits(task_of(train=train, select=same, test=same, kind=kind, text=text), 0, tmp_path)
    assert error.value.hint.endswith(hint)


def test_rows_that_select_and_test_share_are_counted(write, task_of, tmp_path, capsys):
    train, file = write("t.tsv", table(40, start=100)), write("s.tsv", table(40))
    prepare_splits(task_of(train=train, select=file, test=file), 0, tmp_path, Console("human"))
    assert "40 of 40 test rows have a text that is also in select" in capsys.readouterr().err


def test_the_copy_of_rows_holds_what_the_task_reads(write, task_of):
    rows = [{"text": "a", "label": "b", "vector": [0.5] * 8, "note": "x"}] * 3
    task = task_of(train=write("t.jsonl", "".join(json.dumps(row) + "\n" for row in rows)), slices="note")
    source = row_sources.open_sources(task, Console("quiet"))["train"]
    assert [dict(raw.values) for raw in source()] == rows
    with tempfile.TemporaryFile() as file:
        copied = row_sources.CopiedRows(source, file)
        for _ in range(2):
            (first, *_) = list(copied())
            assert (set(first.values), column_names(first.values)) == ({"text", "label", "note"}, tuple(rows[0]))


def test_rows_of_a_group_have_one_role(write, task_of, tmp_path):
    rows = [f"text {number}\t{'ab'[number % 2]}\tauthor {number % 40}" for number in range(400)]
    path = write("t.tsv", "text\tlabel\tauthor\n" + "\n".join(rows) + "\n")
    info = prepare_splits(task_of(train=path, test_share=0.2, group="author"), 0, tmp_path)
    assert info.counts == {"train": 250, "select": 70, "test": 80}
    of = [{int(text.split()[1]) % 40 for text in texts(tmp_path, role)} for role in ("train", "select", "test")]
    assert sum(map(len, of)) == len(set.union(*of)) == 40


def test_questions_about_one_text_have_one_role(write, task_of, tmp_path):
    rows = [
        {"question": f"what {number} ?", "context": f"it was day {number % 30}", "answers": [f"day {number % 30}"]}
        for number in range(240)
    ]
    path = write("t.jsonl", "\n".join(map(json.dumps, rows)))
    prepare_splits(
        task_of(
            kind="question_answering",
            train=path,
            test_share=0.1,
            text=["question", "context"],
            label="answers",
            max_length=64,
        ),
        0,
        tmp_path,
    )
    of = [{row["context"] for row in load_prepared(tmp_path).rows(role)} for role in ("train", "select", "test")]
    assert sum(map(len, of)) == 30
    assert min(map(len, of)) >= 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"group": "nobody", "test_share": 0.1}, "there is no column 'nobody'"),
        ({"group": "label", "select": "t.tsv", "test": "t.tsv"}, "group.* has no effect"),
    ],
)
def test_groups_that_cannot_be_are_refused(given, message, write, task_of, tmp_path):
    write("t.tsv", table(40))
    files = {name: str(tmp_path / value) if str(value).endswith(".tsv") else value for name, value in given.items()}
    with pytest.raises(DataError, match=message):
        prepare_splits(task_of(train=tmp_path / "t.tsv", **files), 0, tmp_path)


def test_rows_without_a_group_are_alone(write, task_of, tmp_path):
    rows = [{"text": f"text {number}", "label": "ab"[number % 2]} for number in range(400)]
    for number in range(0, 200, 2):
        rows[number]["author"] = ["", None, "one"][number % 3]
    path = write("t.jsonl", "\n".join(map(json.dumps, rows)))
    info = prepare_splits(task_of(train=path, test_share=0.2, group="author", format="jsonl"), 0, tmp_path)
    assert info.counts["test"] == pytest.approx(80, abs=20)
    assert info.counts["select"] == pytest.approx(64, abs=16)


def test_too_few_groups_are_refused_where_they_are_asked_for(write, task_of, tmp_path, capsys):
    rows = [f"text {number}\t{'ab'[number % 2]}\t{number % 2}" for number in range(100)]
    path = write("t.tsv", "text\tlabel\tauthor\n" + "\n".join(rows) + "\n")
    with pytest.raises(DataError, match="too few groups to split off"):
        prepare_splits(task_of(train=path, test_share=0.2, group="author"), 0, tmp_path)
    rows = [
        {"question": f"what {number} ?", "context": "it was a day", "answers": [["it", "a day"][number % 2]]}
        for number in range(100)
    ]
    path = write("t.jsonl", "\n".join(map(json.dumps, rows)))
    task = task_of(kind="question_answering", train=path, test_share=0.1, text=["question", "context"], label="answers")
    (tmp_path / "qa").mkdir()
    prepare_splits(task, 0, tmp_path / "qa", Console("human"))
    assert "questions about one text may be of several roles" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("large", [0, 100, 500])
def test_a_large_group_is_left_in_train(large):
    groups = np.array([0] * large + list(range(large, 1000)))
    for seed in range(30):
        marks = assign_roles(1000, seed, {"select": 0.1, "test": 0.2}, None, "train", groups=groups)
        assert marks["select"].sum() == pytest.approx(100, abs=50)
        assert marks["test"].sum() == pytest.approx(200, abs=100)
        assert np.stack(list(marks.values())).sum(axis=0).tolist() == [1] * 1000


def test_one_group_cannot_be_split():
    with pytest.raises(TooFewGroups):
        assign_roles(1000, 0, {"select": 0.1}, None, "train", groups=np.zeros(1000, np.int64))
