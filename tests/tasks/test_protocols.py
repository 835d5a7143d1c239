"""The parts of a kind, the arrays of its batches, and the paths from text to model input, for all kinds."""

import ast
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest

from compress.batch_arrays import BATCH_POSITIONS, EXTRA_COLUMNS, INPUT_ARRAYS, LABELLED, SOFT_LABELS
from compress.data.encode import encode_rows, training_examples
from compress.data.tokenizer import TextTokenizer
from compress.model_folder.model_info import TaskInfo
from compress.models.heads import HEADS
from compress.recipe.task_schema import Task
from compress.runtime.text_model import TextModel
from compress.tasks import KINDS
from compress.tasks.kind import Kind, ModelInterface, RowReader
from compress.tasks.scorer import Scorer
from tests.compared_words import compared_words

SOURCE = Path(__file__).parents[2] / "compress"
OTHER_MEANINGS = {
    "losses/__init__.py": {"similarity"},  # a loss
    "model_folder/sentence_transformers_files.py": {"classification", "ranking", "similarity"},  # made of its files
    "model_folder/tokenizer_files.py": {"question_answering"},  # which of a pair other tools cut
}
"""By file, words that name no kind there, or that of folders below the table of kinds."""

INPUTS = {
    "classification": ["a good film", "bad"],
    "multi_label": ["a good film", "bad"],
    "regression": ["a good film", "bad"],
    "token_classification": ["a good film", "bad"],
    "question_answering": [("which film", "a good film it was"), ("which", "bad plot " * 40)],
    "multiple_choice": [("a film", "good", "bad plot"), ("a", "very", "not", "film")],
    "ranking": [("a film", "good", "bad plot"), ("a", "very")],
    "similarity": [("a film", "good"), ("a", "very bad")],
    "retrieval": ["a film", "very bad plot"],
}
LABELS = {"token_classification": ("O", "B-x", "I-x"), "classification": ("a", "b"), "multi_label": ("a", "b")}


def info_of(name, **settings):
    columns = KINDS[name].defaults.get("text", ["text"])
    base = {"name": "t", "kind": name, "text": columns, "labels": LABELS.get(name, ()), "metric": "x"}
    return TaskInfo(**{**base, "max_length": 16, "overlap": 4, **settings})


def rows_of(name, info):
    return [KINDS[name].from_input(given, info) for given in INPUTS[name]]


def test_every_kind_is_tested_here():
    assert set(INPUTS) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_has_the_three_parts(name):
    kind = KINDS[name]
    assert all(isinstance(kind, part) for part in (RowReader, ModelInterface, Scorer))
    assert kind.hub_pipeline
    names = [array.name for array in (*kind.arrays().values(), *BATCH_POSITIONS)]
    assert len(set(names)) == len(names)


def test_the_parts_of_a_kind_share_no_method():
    def own(part):
        return {name for name in vars(part) if not name.startswith("_")}

    parts = [own(RowReader), own(ModelInterface), own(Scorer), own(Kind)]
    assert len(set.union(*parts)) == sum(map(len, parts))
    assert all(len(part) <= 25 for part in parts)


def test_no_other_code_tells_kinds_apart():
    """By their names or by what their outputs are trained for: what differs is a fact of the kind."""
    names = {*KINDS, *(kind.problem for kind in KINDS.values())}
    tables = {SOURCE / "tasks" / "__init__.py", *(SOURCE / "tasks" / "kinds").iterdir()}
    places = [
        f"{path.relative_to(SOURCE)}:{line} {word}"
        for path in {*SOURCE.rglob("*.py")} - tables
        for line, word in compared_words(ast.parse(path.read_text(encoding="utf-8")))
        if word in names - OTHER_MEANINGS.get(path.relative_to(SOURCE).as_posix(), set())
    ]
    assert places == []


@pytest.mark.parametrize("name", KINDS)
def test_what_a_kind_names_is_there(name):
    kind = KINDS[name]
    named = [kind.loss.path, kind.outputs.view, kind.baseline.path, *filter(None, [kind.answer_form])]
    assert all(callable(resolve_name(path)) for path in named)
    assert kind.defaults.keys() <= Task.model_fields.keys()


@pytest.mark.parametrize("name", KINDS)
def test_an_empty_input_has_the_fields_of_every_answer(name, tiny_model, tiny_folder):
    info, kind = info_of(name, labels=LABELS.get(name, ()), max_answer=4), KINDS[name]
    outputs = tuple(map(str, range(kind.output_count(info))))
    head = HEADS[kind.head].suffix
    model = TextModel.open(tiny_folder(tiny_model("bert", labels=outputs, head=head, sentence_size=8), info))
    given = INPUTS[name][0]
    blank = tuple(" " for _ in given) if isinstance(given, tuple) else ""
    empty, answer, line = model.predict([blank, given, blank])
    assert empty == line == {**dict.fromkeys(answer), "reason": "no text"}
    assert None not in answer.values() or name == "question_answering"
    assert kind.empty_answer(blank).keys() == dict.fromkeys(kind.answer_fields).keys()
    assert model.predict([""])[0]["reason"] == "no text"  # a blank line of a file


@pytest.mark.parametrize("name", ["similarity", "question_answering"])
def test_where_every_text_is_needed_one_that_is_empty_leaves_no_answer(name):
    assert KINDS[name].is_empty(("a film", " "))
    assert not KINDS["ranking"].is_empty(("a film", " "))
    assert not KINDS[name].is_empty(("a film", None))


@pytest.mark.parametrize("name", KINDS)
def test_every_array_of_a_batch_is_declared(name, word_folder):
    """With labels and extra columns, in the declared type and with the declared padding."""
    info, kind = info_of(name), KINDS[name]
    extra = {SOFT_LABELS: [0.25, 0.75], LABELLED: True}
    rows = [{**row, **kind.placeholder_label(row, info), **extra} for row in rows_of(name, info)]
    encoded = encode_rows(rows, info, TextTokenizer.load(word_folder))
    examples = training_examples(encoded, info)
    arrays = examples.arrays()
    for key, array in examples.batch(np.arange(2)).items():
        assert array.dtype == arrays[key].dtype
        assert len(array) == sum(encoded.counts)
        assert (array.shape[1:] == encoded.batch(range(len(encoded)))["input_ids"].shape[1:]) == (
            arrays[key].per == "token"
        )
    assert {array.name for array in EXTRA_COLUMNS} <= arrays.keys()
    hosted = {name for name, array in arrays.items() if array.where == "host"}
    assert hosted == {"index", "group", "labelled", "soft_labels"}


@pytest.mark.parametrize("long", ["cut", "mean"])
@pytest.mark.parametrize("name", KINDS)
def test_predict_and_scoring_read_texts_alike(name, long, word_folder):
    """`TextModel` (predict) and `encode_rows` (training and scoring) make the same arrays of the same inputs."""
    info, tokens = info_of(name, long=long), TextTokenizer.load(word_folder)
    model = TextModel(info, KINDS[name], tokens, predictor=None)
    prepared = model.prepare(INPUTS[name])
    encoded = encode_rows(rows_of(name, info), info, tokens)
    assert prepared.counts == encoded.counts.tolist()
    batch = encoded.batch(range(len(encoded)))
    del batch["index"]
    arrays = model.arrays(prepared.examples)
    assert arrays.keys() == batch.keys()
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, batch[key], err_msg=key)
        assert array.dtype == batch[key].dtype


def test_a_new_extra_column_needs_one_declaration(word_folder, monkeypatch):
    """A new extra column needs one line: it is encoded, collated and stays on the host."""
    import compress.batch_arrays as declarations
    from compress.tasks import kind

    weight = declarations.BatchArray("weight", "example", np.float32, where="host")
    columns = (*EXTRA_COLUMNS, weight)
    monkeypatch.setattr(declarations, "EXTRA_NAMES", tuple(array.name for array in columns))
    monkeypatch.setattr(kind, "EXTRA_COLUMNS", columns)
    info = info_of("classification")
    rows = [{"text": text, "label": 0, "weight": weight} for text, weight in (("a film", 0.5), ("bad", 2.0))]
    batch = encode_rows(rows, info, TextTokenizer.load(word_folder)).batch([1, 0])
    assert batch["weight"].tolist() == [2.0, 0.5]
    assert INPUT_ARRAYS[0].name in batch
