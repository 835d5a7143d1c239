"""Unlabelled texts: how each kind reads them, how they are counted, and what they are in a batch."""

import json

import numpy as np
import pytest

from compress.console import Console
from compress.data.encode import encode_rows, training_examples
from compress.data.loading.data_digest import STEP_PARTS, contents_digest
from compress.data.loading.file_columns import check_columns
from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.data.splits.row_store import ConcatenatedRows
from compress.data.splits.unlabelled_texts import prepare_unlabelled, unlabelled_info, unlabelled_rows
from compress.data.tokenizer import TextTokenizer
from compress.errors import DataError
from compress.model_folder.model_info import TaskInfo
from compress.recipe.task_schema import Data
from compress.tasks import kind_of


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


LABELLED = lines(*({"text": f"a {word}", "label": label} for word, label in zip("abcd", "xyxy", strict=True)))
SQUAD = {"question": "a b", "context": "c d e", "answers": {"text": ["d"], "answer_start": [2]}}
KINDS = {
    "classification": ({}, LABELLED, {"text": "e e"}, {"text": "e e", "text_pair": None}),
    "regression": (
        {"text": ("text", "other")},
        lines(*({"text": "a", "other": "b", "label": number} for number in (1.5, 2.5, 3))),
        {"text": "c", "other": "d"},
        {"text": "c", "text_pair": "d"},
    ),
    "multi_label": (
        {},
        lines({"text": "a", "label": ["x"]}, {"text": "b", "label": ["y", "x"]}),
        {"text": "c"},
        {"text": "c", "text_pair": None},
    ),
    "token_classification": (
        {"text": ("words",), "label": "tags"},
        lines({"words": ["a", "b"], "tags": ["B-x", "O"]}, {"words": ["c"], "tags": ["O"]}),
        {"words": "c d e"},
        {"words": ["c", "d", "e"]},
    ),
    "question_answering": (
        {"text": ("question", "context"), "label": "answers", "max_answer": 8},
        lines(SQUAD, {**SQUAD, "answers": {"text": [], "answer_start": []}}),
        {"question": "b", "context": "c"},
        {"question": "b", "context": "c"},
    ),
    "multiple_choice": (
        {"text": ("text", "choices")},
        lines(*({"text": "a", "choices": ["b", "c", "d"], "label": label} for label in "AB")),
        {"text": "b", "choices": ["c", "d"]},
        {"text": "b", "choices": ["c", "d"]},
    ),
    "ranking": (
        {"text": ("text", "candidate")},
        lines(*({"text": f"a {number // 2}", "candidate": "b", "label": number % 2} for number in range(4))),
        [{"text": "a", "candidate": "c"}, {"text": "a", "candidate": "d e"}],
        {"text": "a", "candidates": ["c", "d e"]},
    ),
    "similarity": (
        {"text": ("text", "other")},
        lines(*({"text": "a", "other": "b", "label": number} for number in (0.25, 0.5, 1))),
        {"text": "c", "other": "d"},
        {"text": "c", "text_pair": "d"},
    ),
    "retrieval": (
        {"text": ("query",), "label": "answer"},
        lines(*({"query": f"a {word}", "answer": f"b {word}"} for word in "cde")),
        {"query": "e"},
        {"query": "e"},
    ),
}


@pytest.fixture
def prepared(write, task_of, tmp_path):
    """Prepares the rows of a kind, then unlabelled texts; returns the roles and the folder of the texts."""

    def make(kind, unlabelled=None, name="more.jsonl", **changes):
        settings, train, given, _ = KINDS[kind]
        given = given if isinstance(given, list) else [given]
        file = write(name, lines(*given) if unlabelled is None else unlabelled)
        train = write("train.jsonl", train)
        task = task_of(
            train=train, select=train, test=train, unlabelled=file, kind=kind, max_length=16, **{**settings, **changes}
        )
        check_columns(task)
        data, beside = tmp_path / "data", tmp_path / "beside"
        data.mkdir()
        beside.mkdir()
        prepare_splits(task, 0, data)
        roles = load_prepared(data)
        prepare_unlabelled(task, roles, 0, beside)
        return roles, beside

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_reads_a_file_with_one_text_a_line(prepared, kind, tmp_path):
    expected = KINDS[kind][-1]
    words = {name: part for name, part in expected.items() if part is not None}
    parts = [part for value in words.values() for part in (value if isinstance(value, list) else [value])]
    line = (" " if kind == "token_classification" else "\t").join(parts)
    _, beside = prepared(kind, unlabelled=f"\n{line}\n", name="more.txt")
    assert list(unlabelled_rows(beside)) == [expected]


def test_a_line_that_is_no_input_of_the_kind_is_named(prepared):
    with pytest.raises(DataError, match=r"more\.txt, line 2: .* reads"):
        prepared("multiple_choice", unlabelled="\nonly one\n", name="more.txt")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_reads_them_and_puts_them_into_batches(prepared, kind, word_folder):
    roles, beside = prepared(kind)
    train, unlabelled = roles.rows("train"), unlabelled_rows(beside)
    assert list(unlabelled) == [KINDS[kind][-1]]
    assert (unlabelled_info(beside).count, roles.info.counts["train"]) == (1, len(train))
    task, tokens = roles.info.task_info, TextTokenizer.load(word_folder)
    encoded = encode_rows(ConcatenatedRows(train, [unlabelled], task), task, tokens)
    alone = encode_rows(train, task, tokens)
    bare = encode_rows(unlabelled, task, tokens)
    assert len(encoded) == len(alone) + len(bare)
    last = training_examples(encoded, task)
    batch = last.batch(np.arange(len(last.lengths)))
    assert batch["labelled"].tolist() == [1.0] * len(alone) + [0.0] * len(bare)
    for name, array in alone.batch(range(len(alone))).items():  # placeholders change nothing
        np.testing.assert_array_equal(batch[name][: len(alone), ...][..., : array.shape[-1]], array)
    for name, array in bare.batch(range(len(bare))).items():
        if name != "index":
            np.testing.assert_array_equal(batch[name][len(alone) :, ...][..., : array.shape[-1]], array)


def test_labels_are_not_read(prepared):
    _, beside = prepared("classification", lines({"text": "e", "label": "no class"}, {"text": "f", "label": None}))
    assert [row["text"] for row in unlabelled_rows(beside)] == ["e", "f"]


def test_tags_are_not_needed(prepared):
    _, beside = prepared("token_classification", "c\nd\n\ne\n", name="more.conll", header={"unlabelled": ["words"]})
    assert [row["words"] for row in unlabelled_rows(beside)] == [["c", "d"], ["e"]]


def test_lists_of_candidates(prepared):
    _, beside = prepared("ranking", lines({"text": "a", "candidate": ["b", "c"]}))
    assert list(unlabelled_rows(beside)) == [{"text": "a", "candidates": ["b", "c"]}]


def test_a_limit_and_rows_that_do_not_fit(prepared):
    many = lines(*({"text": f"e {number}"} for number in range(10)), {"text": 5})
    info = unlabelled_info(prepared("classification", many, limit=3, bad_rows="skip")[1])
    assert (info.count, info.skipped) == (3, 1)
    assert "row 11" in info.first_skipped


@pytest.mark.parametrize(("kind", "known"), [("classification", {"text": "a a"}), ("retrieval", {"query": "a c"})])
def test_texts_shared_with_test_are_reported(prepared, kind, known, write, task_of, tmp_path, capsys):
    roles, beside = prepared(kind, lines(known, KINDS[kind][2]))
    assert unlabelled_info(beside).duplicates == 1
    settings, train, *_ = KINDS[kind]
    files = {"train": write("t.jsonl", train), "unlabelled": write("u.jsonl", lines(known, {**known, **EMPTY[kind]}))}
    task = task_of(**files, kind=kind, max_length=16, **settings)
    prepare_unlabelled(task, roles, 0, tmp_path, Console("quiet"))
    output = capsys.readouterr().err
    assert f"1 of {roles.info.counts['test']} test rows have a text that is also in unlabelled." in output
    assert ("1 row with an empty text" in output) == (kind == "classification")


EMPTY = {"classification": {"text": ""}, "retrieval": {"query": "e"}}


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("classification", {"texts": "a"}, "more.jsonl, row 1 .*there is no column 'text'"),
        ("classification", {"text": 5}, "row 1 .* column 'text' is 5 where text is expected"),
        ("question_answering", {"question": "a", "context": " "}, "row 1 .* column 'context' is empty"),
        ("similarity", {"text": "a", "other": ""}, "row 1 .* nothing is similar to an empty text"),
        ("retrieval", {"query": " "}, "row 1 .* the query is empty"),
        ("multiple_choice", {"text": "a", "choices": ["b"]}, "row 1 .* 1 choice; 2 to 1,000"),
        ("ranking", {"text": "a", "candidate": [" "]}, "row 1 .* candidate 1 of 1 is empty"),
        ("token_classification", {"words": []}, "row 1 .* has no words"),
        ("token_classification", {"words": ["a"] * 300}, "row 1 .* 300 words, more than the tokens of all its windows"),
    ],
)
def test_invalid_rows_are_refused_with_their_location(prepared, kind, row, message):
    with pytest.raises(DataError, match=message):
        prepared(kind, lines(row))


def test_no_rows_are_an_error(prepared):
    with pytest.raises(DataError, match="has no rows"):
        prepared("classification", "\n")
    with pytest.raises(DataError, match=r"unlabelled .* has no rows left: 1 row"):
        prepared("classification", lines({"text": 5}), bad_rows="skip")


def test_a_missing_file_names_its_key(write, task_of):
    task = task_of(train=write("t.jsonl", LABELLED), test=write("e.jsonl", LABELLED), unlabelled="nowhere.jsonl")
    with pytest.raises(DataError, match=r"task.data.unlabelled: there is no file"):
        check_columns(task)


def test_no_unlabelled_texts_are_given(write, task_of, tmp_path):
    file = write("t.jsonl", LABELLED)
    prepare_splits(task_of(train=file, select=file, test=file), 0, tmp_path)
    with pytest.raises(DataError, match="holds no prepared data"):
        unlabelled_info(tmp_path)
    (tmp_path / "beside").mkdir()
    with pytest.raises(DataError, match="there is nothing in it"):
        prepare_unlabelled(task_of(train=file, select=file, test=file), load_prepared(tmp_path), 0, tmp_path / "beside")
    (tmp_path / "unlabelled.json").write_text("{}")
    with pytest.raises(DataError, match=r"unlabelled.json cannot be read: count"):
        unlabelled_info(tmp_path)


def test_they_are_no_part_of_what_the_roles_are(write):
    train, more = str(write("1.tsv", "x")), str(write("2.tsv", "y"))
    alone, beside, other = (Data(train=train, **given) for given in ({}, {"unlabelled": more}, {"unlabelled": train}))
    assert contents_digest(alone) == contents_digest(beside) != contents_digest(Data(train=train, test=more))
    assert len({contents_digest(data, ("unlabelled",)) for data in (alone, beside, other)}) == 3
    hub = Data(hub="a/b", train="train", unlabelled="more")
    assert contents_digest(hub) == contents_digest(hub.model_copy(update={"unlabelled": None}))
    assert contents_digest(hub, ("unlabelled",)) != contents_digest(hub, (*STEP_PARTS, "unlabelled"))


def test_rows_keep_their_order_and_say_what_they_are():
    task = TaskInfo(name="t", kind="classification", text=("text",), labels=("x", "y"), metric="accuracy", max_length=8)
    train = [{"text": "a", "text_pair": None, "label": 1, "soft_labels": [0.25, 0.75]}]
    more = [kind_of(task).from_input(text, task) for text in ("b", "c")]
    rows = ConcatenatedRows(train, [more[:1], (), more[1:]], task)
    assert [row["text"] for row in rows] == ["a", "b", "c"]
    assert [row["labelled"] for row in rows] == [True, False, False]
    assert [rows.origin(index) for index in range(3)] == [("train", 0), ("unlabelled", 0), ("unlabelled", 1)]
    assert rows[0]["soft_labels"] == [0.25, 0.75]
    assert np.isnan(rows[-1]["soft_labels"]).tolist() == [True, True]
    with pytest.raises(IndexError):
        rows[3]


class TestLabelled:
    """`labelled: N`: the labels of N rows of train, and the texts of its other rows."""

    @pytest.fixture
    def splits(self, write, task_of, tmp_path):
        def make(**settings):
            rows = [{"text": f"a {number}", "label": "xy"[number % 2]} for number in range(40)]
            task = task_of(
                train=write("train.jsonl", lines(*rows)), test_share=0.25, **{"select_share": 0.1, **settings}
            )
            for name in ("data", "beside"):
                (tmp_path / name).mkdir(exist_ok=True)
            prepare_splits(task, 0, tmp_path / "data")
            roles = load_prepared(tmp_path / "data")
            prepare_unlabelled(task, roles, 0, tmp_path / "beside")
            texts = {role: {row["text"] for row in roles.rows(role)} for role in ("train", "select", "test")}
            return {**texts, "unlabelled": {row["text"] for row in unlabelled_rows(tmp_path / "beside")}}

        return make

    def test_the_other_rows_of_train_are_unlabelled(self, splits):
        texts = splits(labelled=8)
        assert {role: len(texts[role]) for role in texts} == {"train": 8, "select": 4, "test": 10, "unlabelled": 18}
        assert len(set.union(*texts.values())) == 40

    def test_no_row_has_two_roles_where_the_gate_decides_the_rows_of_select(self, splits):
        texts = splits(labelled=8, select_share="auto")
        assert {role: len(texts[role]) for role in texts} == {"train": 8, "select": 6, "test": 10, "unlabelled": 16}
        assert len(set.union(*texts.values())) == 40

    def test_select_and_test_are_the_same_rows_as_without_it(self, splits):
        few, many = splits(labelled=8), splits(labelled=25)
        assert (few["select"], few["test"]) == (many["select"], many["test"])
        assert few["train"] < many["train"]
        assert few["train"] | few["unlabelled"] == many["train"] | many["unlabelled"]

    def test_more_than_train_has_is_refused(self, splits):
        with pytest.raises(DataError, match=r"labelled is 26, and train has 26 rows"):
            splits(labelled=26)

    def test_limit_bounds_both(self, splits):
        texts = splits(labelled=8, limit=12)
        assert (len(texts["train"]), len(texts["unlabelled"])) == (8, 4)

    def test_a_text_whose_label_does_not_fit_is_one_of_the_others(self, write, task_of, tmp_path):
        rows = [{"text": f"a {number}", "label": None if number % 4 == 0 else "xy"[number % 2]} for number in range(80)]
        file = write("train.jsonl", lines(*rows, {"text": 5, "label": "x"}))
        task = task_of(train=file, test_share=0.25, labelled=8, bad_rows="skip")
        (tmp_path / "beside").mkdir()
        info = prepare_splits(task, 0, tmp_path)
        roles = load_prepared(tmp_path)
        prepare_unlabelled(task, roles, 0, tmp_path / "beside")
        texts = {row["text"] for row in unlabelled_rows(tmp_path / "beside")}
        assert info.skipped == 21
        assert len(roles.rows("train")) == 8
        assert texts & {f"a {number}" for number in range(0, 80, 4)}
        assert not texts & {row["text"] for role in ("train", "select", "test") for row in roles.rows(role)}

    def test_files_of_texts_besides_are_refused(self):
        with pytest.raises(ValueError, match="either unlabelled"):
            Data(train="a.csv", unlabelled="b.csv", labelled=4)
