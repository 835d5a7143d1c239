"""Tables with answers beside their columns: every kind, every form of table."""

import json

import numpy as np
import pytest

import compress
from compress.errors import DataError, UsageError

TEXTS = ["a fine film", "", "the plot is dull", "so very good and great", "bad"]

INPUTS = {
    "classification": {"text": TEXTS[0]},
    "regression": {"text": TEXTS[0]},
    "multi_label": {"text": TEXTS[0]},
    "token_classification": {"tokens": TEXTS[0].split()},
    "question_answering": {"question": "is it good", "context": TEXTS[2]},
    "multiple_choice": {"question": "is it good", "choices": ["good", "bad", "dull"]},
    "ranking": {"query": "good", "candidates": ["a fine film", "bad"]},
    "similarity": {"sentence1": "good", "sentence2": "fine"},
    "retrieval": {"query": "a good film"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(INPUTS))
def test_every_kind_answers_as_predict_does(kind: str, exported) -> None:
    model = compress.open(exported(kind))
    row = {name: INPUTS[kind][given] for name, given in zip(model.task.text, INPUTS[kind], strict=True)}
    flat = [text for value in row.values() for text in (value if isinstance(value, list) else [value])]
    [expected] = model.predict([tuple(flat) if len(flat) > 1 else flat[0]])
    [found] = compress.predict_table(exported(kind), [row])
    assert found == row | expected


@pytest.mark.parametrize("kind", sorted(INPUTS))
def test_a_row_without_text_has_an_empty_answer(kind: str, exported) -> None:
    model = compress.open(exported(kind))
    [found] = compress.predict_table(exported(kind), [dict.fromkeys(model.task.text, "")])
    assert {found[name] for name in found if name not in model.task.text} == {None}


@pytest.mark.slow
def test_answers_keep_the_order_of_rows_and_stay_equal_at_any_batch(model) -> None:
    texts = [" ".join(TEXTS[: count % 5]) or "good" for count in range(300)]
    expected = [compress.open(model).predict([text])[0] for text in texts]
    for batch in (1, 7, 64):
        found = compress.predict_table(model, [{"text": text} for text in texts], batch=batch)
        assert [row["label"] for row in found] == [row["label"] for row in expected]
        differences = [abs(one["probability"] - two["probability"]) for one, two in zip(found, expected, strict=True)]
        assert max(differences) < 1e-6


def test_a_cell_may_hold_the_json_of_a_list(exported) -> None:
    row = {"question": "is it good", "choices": json.dumps(["good", "bad"])}
    [found] = compress.predict_table(exported("multiple_choice"), [row])
    assert len(found["probabilities"]) == 2


def test_probabilities_of_all_classes(model) -> None:
    [found] = compress.predict_table(model, [{"text": "good"}], probabilities=True)
    assert set(found["probabilities"]) == {"bad", "good"}
    assert found["probabilities"][found["label"]] == pytest.approx(found["probability"])


def test_probabilities_of_what_has_no_classes(exported) -> None:
    with pytest.raises(UsageError, match="only tasks with classes"):
        compress.BulkPredictor(exported("regression"), probabilities=True)


def test_one_column_of_a_pair_is_embedded(exported) -> None:
    [found] = compress.predict_table(exported("similarity"), [{"title": "good"}], text="title")
    assert np.linalg.norm(found["embedding"]) == pytest.approx(1.0, abs=1e-4)


def test_arrays_frames_and_arrow_tables_come_back_as_what_they_are(model) -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    labels = [row["label"] for row in compress.predict_table(model, [{"text": text} for text in TEXTS])]
    frame = compress.predict_table(model, pandas.DataFrame({"text": TEXTS}, index=list("abcde")))
    assert list(frame.index) == list("abcde")
    assert frame["label"].isna().tolist() == [label is None for label in labels]
    assert frame["label"].iloc[0] == labels[0]
    table = compress.predict_table(model, pyarrow.table({"text": TEXTS}))
    assert table["label"].to_pylist() == labels
    assert str(table.schema.field("probability").type) == "float"
    arrays = compress.predict_table(model, {"text": np.array(TEXTS, object)})
    assert arrays["label"].tolist() == labels


def test_embeddings_of_arrays_have_two_axes(exported) -> None:
    found = compress.BulkPredictor(exported("retrieval"))({"query": np.array(["good", "bad"], object)})
    assert found["embedding"].dtype == np.float32
    assert found["embedding"].ndim == 2


def test_nothing_in_nothing_out(model) -> None:
    assert compress.predict_table(model, []) == []


@pytest.mark.parametrize("once", [iter, lambda rows: (row for row in rows)])
def test_rows_that_can_be_read_only_once(once, model) -> None:
    rows = [{"text": text} for text in TEXTS]
    assert compress.predict_table(model, once(rows)) == compress.predict_table(model, rows)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ([{"txt": "good"}], {}, "there is no column 'text'; did you mean txt"),
        ([{"text": "good", "label": "x"}], {}, "has a column 'label' already"),
        ([{"text": "good"}], {"text": ("text", "b", "c")}, "reads 1 to 2 columns of text; got 3 columns"),
        ("good", {}, "got str"),
        (None, {}, "got NoneType"),
        ([{"text": "good"}, "bad"], {}, "got list"),
        ({"text": "good"}, {}, "column 'text' is a list of values; got a text"),
    ],
)
def test_wrong_tables(table, options, message: str, model) -> None:
    with pytest.raises(UsageError, match=message):
        compress.predict_table(model, table, **options)


def test_a_cell_that_is_no_text(model) -> None:
    with pytest.raises(DataError, match=r"row 2: '5' \(int\) is no text"):
        compress.predict_table(model, [{"text": "good"}, {"text": 5}])


def test_half_a_character_is_a_row_that_cannot_be_read(model) -> None:
    with pytest.raises(DataError, match="row 2: it holds half a character"):
        compress.predict_table(model, [{"text": "good"}, {"text": "a \ud83d"}])


def test_a_prefix(model) -> None:
    [found] = compress.predict_table(model, [{"text": "good", "label": "x"}], prefix="model_")
    assert found["label"] == "x"
    assert found["model_label"] in ("bad", "good")


def test_what_spark_calls_answers_arrays(model) -> None:
    predict = compress.spark_predictor(model)()
    found = predict(np.array(["good", ""], object))
    assert found[0]["label"] in ("bad", "good")
    assert found[1]["label"] is None
