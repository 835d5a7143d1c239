"""Augmentation: which words are replace_words and by what, for every kind, once, and past the cache."""

import re
from random import Random

import numpy as np
import pytest

from compress.console import Console
from compress.errors import DataError, ModelError, UsageError
from compress.model_folder.model_info import TaskInfo
from compress.models.masked_lm import MaskedWord
from compress.models.tiny import tiny_tokenizer as letters
from compress.models.tiny import write_tiny_model
from compress.recipe.distill_schema import Augment, Distill
from compress.tasks import kind_of
from compress.train.core import training_data
from compress.train.core.gradients import find_nan_rows
from compress.train.distill import distill_from_model
from compress.train.distillation import augment as module
from compress.train.distillation.augment import (
    augmented_rows,
    changed_rows,
    check_unlabelled,
    match_case,
    replace_words,
    words_to_replace,
)

TASK = TaskInfo(
    name="t", kind="classification", text=("text",), labels=("bad", "good"), metric="accuracy", max_length=32
)
ROWS = [
    {"text": text, "text_pair": None, "label": 1}
    for text in ("The film, of 1999, is GOOD!", "not so bad", "a  very\tdull plot", "42", "great")
]


@pytest.fixture
def quiet():
    return Console("quiet")


def settings_of(folder, **others):
    return Augment(model=str(folder), **others)


def made(rows, settings, model, task=TASK, seed=0):
    return list(changed_rows(rows, settings, task, seed, model, Console("quiet")))


def test_only_words_change_and_nothing_else(masked_folder, masked_model):
    result = made(ROWS, settings_of(masked_folder, replace=1.0), masked_model)
    assert len(result) == 4  # there is no word in 42
    for before, after in zip([row for row in ROWS if row["text"] != "42"], result, strict=True):
        assert set(after) == {"text", "text_pair", "copy_of"}
        assert ROWS[after["copy_of"]] == before
        words = re.findall(r"[^\W\d_]+", before["text"])
        changed = re.findall(r"[^\W\d_]+", after["text"])
        assert all(ours.lower() != theirs.lower() for ours, theirs in zip(words, changed, strict=True))
        assert re.split(r"[^\W\d_]+", before["text"]) == re.split(r"[^\W\d_]+", after["text"])
        assert [word[0].isupper() for word in words] == [word[0].isupper() for word in changed]


def test_a_word_is_one_of_the_likeliest(masked_folder, masked_model):
    word = MaskedWord("great", 0, 5)
    likely = masked_model.candidates([masked_model.encode(word)], 3)[0]
    copies = made(ROWS[-1:], settings_of(masked_folder, replace=1.0, copies=40, candidates=3), masked_model)
    assert {row["text"] for row in copies} == set(likely)


def test_the_share_of_words_that_change():
    parts = ("a b c d e " * 40, "f g h i j " * 40)
    drawn = words_to_replace(parts, 0.4, Random(0))
    assert sum(map(len, drawn)) / 400 == pytest.approx(0.4, abs=0.06)
    assert [{word.text for word in words} for words in drawn] == [{parts[0]}, {parts[1]}]
    assert sum(map(len, words_to_replace(("a b c", ""), 1e-9, Random(0)))) == 1
    assert words_to_replace(("", "12"), 1.0, Random(0)) == [[], []]


def test_words_of_scripts_without_spaces_and_with_apostrophes():
    drawn = words_to_replace(("don't 映画 naïve_x2",), 1.0, Random(0))[0]
    assert [word.text[word.start : word.end] for word in drawn] == ["don't", "映", "画", "naïve", "x"]


def test_capitals_are_kept():
    assert [match_case("dull", own) for own in ("film", "Film", "FILM", "I")] == ["dull", "Dull", "DULL", "Dull"]
    assert match_case("Paris", "town") == "Paris"


def test_a_word_without_candidates_stays():
    word, other = MaskedWord("a b", 0, 1), MaskedWord("a b", 2, 3)
    assert replace_words("a b", [word, other], {word: [], other: ["c"]}, Random(0)) == "a c"


def test_the_seed_and_nothing_else_decides(masked_folder, masked_model, monkeypatch):
    settings = settings_of(masked_folder, copies=3)
    first = made(ROWS, settings, masked_model)
    assert first == made(ROWS, settings, masked_model) != made(ROWS, settings, masked_model, seed=1)
    monkeypatch.setattr(module, "CHUNK", 2)
    assert first == made(ROWS, settings, masked_model)
    assert len({row["text"] for row in first}) > 4


KINDS = {
    "regression": ({"text": "a b", "text_pair": "c d", "label": 0.5}, {"text", "text_pair"}),
    "token_classification": ({"words": ["U.S.", "b", "c-d"], "label": [0, 1, 0]}, {"words"}),
    "question_answering": ({"question": "a", "context": "b c", "answers": ["c"], "start": 2}, {"question", "context"}),
    "multiple_choice": ({"text": "a", "choices": ["b", "c"], "label": 0}, {"text", "choices"}),
    "ranking": ({"text": "a", "candidates": ["b", "c"], "label": [0.0, 1.0]}, {"text", "candidates"}),
    "similarity": ({"text": "a", "text_pair": "b", "label": 1.0}, {"text", "text_pair"}),
    "retrieval": ({"query": "a b", "positives": ["c"], "negatives": []}, {"query"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_texts_changed(kind, masked_folder, masked_model):
    row, fields = KINDS[kind]
    text = ("text", "text_pair") if kind == "regression" else ("text",)
    task = TaskInfo(name="t", kind=kind, text=text, labels=("O", "B-x", "I-x"), metric="", max_length=32)
    if kind == "question_answering":
        task = task.model_copy(update={"text": ("question", "context")})
    (result,) = made([row], settings_of(masked_folder, replace=1.0), masked_model, task)
    assert set(result) == fields | {"copy_of"}
    for name in fields:
        assert np.shape(result[name]) == np.shape(row[name])
        assert result[name] != row[name]


def test_rows_are_created_once(masked_folder, tmp_path, quiet, monkeypatch):
    settings = settings_of(masked_folder, copies=2)
    first = augmented_rows(ROWS, settings, TASK, 0, tmp_path, quiet)
    assert len(first) == 8
    monkeypatch.setattr(module, "changed_rows", None)
    again = augmented_rows(ROWS, settings, TASK, 0, tmp_path, quiet)
    assert list(again) == list(first)
    for changed in ((ROWS[1:], settings, 0), (ROWS, settings_of(masked_folder), 0), (ROWS, settings, 1)):
        with pytest.raises(TypeError):
            augmented_rows(changed[0], changed[1], TASK, changed[2], tmp_path, quiet)


def test_partial_rows_of_a_killed_step_are_created_again(masked_folder, tmp_path, quiet, monkeypatch):
    def killed(*_):
        yield {"text": "half"}
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "changed_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            augmented_rows(ROWS, settings_of(masked_folder), TASK, 0, tmp_path, quiet)
    assert "half" not in {
        row["text"] for row in augmented_rows(ROWS, settings_of(masked_folder), TASK, 0, tmp_path, quiet)
    }


def test_no_rows_without_settings(tmp_path, quiet):
    assert augmented_rows(ROWS, None, TASK, 0, tmp_path, quiet) == ()


def test_no_word_at_all(masked_folder, tmp_path, quiet):
    with pytest.raises(DataError, match="no training row has a word that can be replaced"):
        augmented_rows(ROWS[3:4], settings_of(masked_folder), TASK, 0, tmp_path, quiet)


def test_a_model_without_the_head(tmp_path, quiet):
    write_tiny_model(tmp_path / "plain", "bert")
    with pytest.raises(ModelError, match="is not a masked language model"):
        augmented_rows(ROWS, settings_of(tmp_path / "plain"), TASK, 0, tmp_path, quiet)


def test_margins_need_documents(masked_folder):
    settings = Distill.model_validate({"losses": {"margin": 1.0}, "augment": {"model": str(masked_folder)}})
    with pytest.raises(UsageError, match="rows of augment have none"):
        check_unlabelled(settings, unlabelled=False)
    with pytest.raises(UsageError, match=r"rows of task.data.unlabelled have none"):
        check_unlabelled(settings.model_copy(update={"augment": None}), unlabelled=True)
    check_unlabelled(Distill(), unlabelled=True)


def test_parts_come_in_order_and_augmented_ones_last(tiny_model, quiet):
    tokens = training_data.fast_tokenizer(tiny_model("bert", vocab_size=200).config, letters("bert"))
    more = [kind_of(TASK).from_input(text, TASK) for text in ("b b", "c c c")]
    result = training_data.from_rows(ROWS, (), TASK, tokens, quiet, unlabelled=more[:1], augmented=more[1:])
    assert result.train.cacheable == len(ROWS) + 1
    batch = result.train.batch([6, 5, 0])
    assert batch["labelled"].tolist() == [0.0, 0.0, 1.0]
    assert batch["attention_mask"].sum(axis=1).tolist()[:2] == [5, 4]
    alone = training_data.from_rows(ROWS, (), TASK, tokens, quiet).train
    assert alone.cacheable == len(ROWS)
    assert "labelled" not in alone.batch([0])


def test_rows_are_named_by_the_set_they_come_from(tiny_model, quiet):
    tokens = training_data.fast_tokenizer(tiny_model("bert", vocab_size=200).config, letters("bert"))
    more = [kind_of(TASK).from_input(text, TASK) for text in ("b b", "c c c", "d", "e e", "f")]
    copies = [{**row, "copy_of": index} for row, index in zip(more[3:], (1, 4), strict=True)]
    train = training_data.from_rows(ROWS, (), TASK, tokens, quiet, unlabelled=more[:3], augmented=copies).train
    batches = [np.array([6, 0, 9]), np.array([3, 7, 8])]

    def location(bad):
        return find_nan_rows(train, batches, lambda indices: bool(np.isin(indices, bad).any()))

    assert location([3]) == "in row 4 of train"
    assert location([7]) == "in row 3 of unlabelled"
    assert location([9]) == "in augmented copies of row 5 of train"
    assert location([1]) == (
        "somewhere in rows 1, 4 of train, rows 2, 3 of unlabelled, augmented copies of rows 2, 5 of train"
    )


def test_windows_are_named_by_their_row(tiny_model, quiet):
    task = TASK.model_copy(update={"long": "mean", "max_length": 8})
    tokens = training_data.fast_tokenizer(tiny_model("bert", vocab_size=200).config, letters("bert"))
    train = training_data.from_rows([{**ROWS[3], "text": "4 2 " * 20}, *ROWS[:2]], (), task, tokens, quiet).train
    assert find_nan_rows(train, [np.array([1])], lambda _: True) == "in row 2 of train"


def test_a_student_learns_from_them(masked_folder, tiny_model, tiny_tokenizer, tiny_task, rows, tmp_path):
    from compress.models.student.build_student import build_student
    from compress.recipe.student_schema import Student

    task = tiny_task
    teacher = tiny_model("bert")
    student = build_student(teacher, Student(layers=1), task)
    settings = Distill(epochs=1, batch_size=8, augment=settings_of(masked_folder))
    more = [kind_of(task).from_input(row["text"], task) for row in rows(6)]
    given = {"settings": settings, "work": tmp_path, "unlabelled_rows": more}
    trained = distill_from_model(teacher, student, tiny_tokenizer, rows(12), rows(4), task, **given)
    assert all(bool(parameter.isfinite().all()) for parameter in trained.parameters())
