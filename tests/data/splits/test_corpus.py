"""What is searched: the documents of each role, the corpus, and hard negatives for train."""

import json

import pytest

from compress.console import Console
from compress.data.loading.data_digest import contents_digest
from compress.data.loading.file_columns import check_columns
from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.errors import DataError
from compress.measure.baselines import baseline_predictions
from compress.tasks import kind_of

pytest.importorskip("scipy")


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def files(write):
    """Writes train, select and test, and gives what a task says of them."""
    train = [
        {"query": "who wrote the red book", "answers": "Ann wrote the red book"},
        {"query": "who wrote the blue book", "answers": ["Bob wrote the blue book", "the blue book is by Bob"]},
        {"query": "where is the lake", "answers": ["the lake is far away"]},
        {"query": "where is the lake", "answers": ["behind the mill"]},
    ]
    test = [
        {"query": "who sold the book", "answers": ["Cid sold the book", "it was sold by Cid"]},
        {"query": "who bought the book", "answers": ["Cid sold the book"]},
    ]

    def make(**more):
        roles = {"train": train, "select": train[:1], "test": test}
        settings = {role: write(f"given-{role}.jsonl", lines(rows)) for role, rows in roles.items()}
        return {**settings, "kind": "retrieval", "text": ("query",), "label": "answers", **more}

    return make


def test_positives_are_rows_of_train_and_numbers_on_test(files, task_of, tmp_path):
    info = prepare_splits(task_of(**files()), 0, tmp_path)
    assert info.counts == {"train": 5, "select": 1, "test": 2}
    assert info.documents == {"select": 1, "test": 2}
    assert info.select_duplicates == 1
    roles = load_prepared(tmp_path)
    assert roles.rows("train")[2] == {
        "query": "who wrote the blue book",
        "positives": ["the blue book is by Bob"],
        "negatives": [],
    }
    assert [row["relevant"] for row in roles.rows("test")] == [[0, 1], [0]]
    assert list(roles.documents("test")) == [{"document": "Cid sold the book"}, {"document": "it was sold by Cid"}]


def test_the_corpus_is_searched_on_test_alone_and_known_texts_are_taken_once(files, task_of, write, tmp_path):
    corpus = [{"text": "something else"}, {"text": "Cid sold the book"}, {"text": "something else"}]
    one, other = write("c.jsonl", lines(corpus)), write("d.tsv", "answers\nmore of it\n")
    task = task_of(**files(corpus=(str(one), str(other))))
    check_columns(task)
    assert prepare_splits(task, 0, tmp_path).documents == {"select": 1, "test": 4}
    documents = [row["document"] for row in load_prepared(tmp_path).documents("test")]
    assert documents == ["Cid sold the book", "it was sold by Cid", "something else", "more of it"]


def test_a_limit_does_not_shorten_the_corpus(files, task_of, write, tmp_path):
    corpus = write("c.jsonl", lines({"text": f"document {number}"} for number in range(50)))
    info = prepare_splits(task_of(**files(corpus=corpus, limit=1)), 0, tmp_path)
    assert (info.counts["test"], info.documents["test"] >= 51) == (1, True)


def test_the_corpus_is_part_of_the_contents(files, task_of, write):
    corpus = write("c.jsonl", lines([{"text": "a"}]))
    task = task_of(**files(corpus=corpus))
    first = contents_digest(task.data)
    assert first != contents_digest(task_of(**files()).data)
    corpus.write_text(lines([{"text": "b"}]))
    assert contents_digest(task.data) != first


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"text": "a"}, {"text": " "}], "c.jsonl, row 2 (line 2): the document is empty"),
        ([{"body": "a"}], "there is no column 'text'; the columns are 'body'"),
        ([{"text": 3}], "column 'text' is 3 where text is expected"),
    ],
)
def test_a_broken_corpus_is_refused_with_its_location(files, task_of, write, tmp_path, rows, expected):
    task = task_of(**files(corpus=write("c.jsonl", lines(rows))))
    with pytest.raises(DataError) as caught:
        prepare_splits(task, 0, tmp_path)
    assert expected in caught.value.message


def test_a_missing_corpus_is_reported_before_reading(files, task_of, tmp_path):
    with pytest.raises(DataError, match=r"task\.data\.corpus: there is no file"):
        check_columns(task_of(**files(corpus=tmp_path / "c.jsonl")))


def test_train_must_have_the_column_of_negatives(files, task_of):
    with pytest.raises(DataError, match="no column 'wrong'"):
        check_columns(task_of(**files(negatives="wrong")))


def test_hard_negatives_share_words_and_are_never_known_answers(files, task_of, tmp_path, capsys):
    prepare_splits(task_of(**files(hard_negatives=2)), 0, tmp_path, Console("human"))
    rows = list(load_prepared(tmp_path).rows("train"))
    mean = sum(len(row["negatives"]) for row in rows) / 5
    assert f"a row of train has {mean:.1f} on average; 2 were requested" in capsys.readouterr().err
    assert len(rows) == 5
    by_query = {}
    for row in rows:
        by_query.setdefault(row["query"], set()).update(row["positives"])
    for row in rows:
        assert 1 <= len(row["negatives"]) <= 2
        assert not by_query[row["query"]] & set(row["negatives"])
    assert rows[0]["negatives"][0] == "Bob wrote the blue book"
    assert rows[1]["negatives"][0] == "Ann wrote the red book"


def test_given_negatives_stay_and_only_missing_ones_are_mined(write, task_of, tmp_path):
    rows = [
        {"query": "red book", "answers": "the red book", "wrong": ["given"]},
        {"query": "blue book", "answers": "the blue book", "wrong": []},
        {"query": "unheard", "answers": "something", "wrong": []},
    ]
    path = write("t.jsonl", lines(rows))
    settings = {"kind": "retrieval", "text": ("query",), "label": "answers"}
    task = task_of(train=path, select=path, test=path, negatives="wrong", hard_negatives=1, **settings)
    info = prepare_splits(task, 0, tmp_path)
    roles = load_prepared(tmp_path)
    assert [row["negatives"] for row in roles.rows("train")] == [["given"], ["the red book"], []]
    assert info.documents["test"] == 4
    assert not list(tmp_path.glob("*mined*"))


def test_the_floor_is_what_words_find(files, task_of, write, tmp_path):
    corpus = write("c.jsonl", lines({"text": f"document {number}"} for number in range(150)))
    info = prepare_splits(task_of(**files(corpus=corpus)), 0, tmp_path)
    roles, kind = load_prepared(tmp_path), kind_of(info.task_info)
    rows = roles.rows("test")
    answers = baseline_predictions((), rows, info.task_info, 0, roles.documents("test"))
    assert answers["found"].shape == (2, 100)
    assert kind.score(answers, kind.gold(rows), info.task_info)["recall_at_10"] == 1.0


def test_reqa_as_published(data_folder, task_of, tmp_path):
    test = str(data_folder / "reqa_squad/test.json.gz")
    settings = {"kind": "retrieval", "text": ("question",), "label": "answers", "aliases": {"question": ["questions"]}}
    train = str(data_folder / "reqa_squad/train.json.gz")
    info = prepare_splits(task_of(train=train, test=test, corpus=test, **settings), 0, tmp_path)
    assert info.counts == {"train": 8000, "select": 2000, "test": 10539}
    assert info.documents == {"select": 1982, "test": 10246}
    assert info.duplicates == 0
