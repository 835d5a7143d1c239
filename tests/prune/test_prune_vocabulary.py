"""Vocabulary pruning of models of every family and tasks of every kind: the answers to train stay as they were."""

import io
import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, RobertaTokenizer, XLMRobertaTokenizer

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.data.tokenizer import TextTokenizer
from compress.errors import ModelError
from compress.families import FAMILIES
from compress.model_folder.model_info import TaskInfo, read_info
from compress.models import load
from compress.models.encoder_parts import word_embeddings
from compress.models.student.build_student import build_student
from compress.prune.prune_vocabulary import position_count, prune_vocabulary, prune_vocabulary_from_model
from compress.prune.surgery import remove_units
from compress.recipe.student_schema import Student, VocabularyRule
from compress.recipe.task_schema import Task
from compress.runtime.text_model import TextModel
from compress.tasks import kind_of
from compress.train import piece_choice as module
from compress.train.core.training_data import fast_tokenizer
from compress.train.distillation.teachers import ids_in_teacher
from tests.data.test_tokenizer_subset import CORPUS, SEEN, bpe, unigram
from tests.variant_builder import build

TRAIN = ["a good film", "the plot was bad", "not so dull"]


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Return a prepared data folder."""
    folder = tmp_path_factory.mktemp("films")
    for name, texts in {"train": TRAIN * 8, "held": ["a fine film", "the plot was bad"]}.items():
        rows = [{"text": text, "label": ("good", "bad")[index % 2]} for index, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sources = {role: str(folder / f"{name}.jsonl") for role, name in (("train", "train"), ("test", "held"))}
    sources["select"] = sources["test"]
    task = Task.model_validate({"name": "films", "kind": "classification", "data": sources, "max_length": 16})
    work = folder / "data"
    work.mkdir()
    prepare_splits(task, 0, work)
    return work


def answers(folder, texts):
    """Return the logits of texts, as the folder's model and tokenizer give them."""
    model, tokens = load(folder), TextTokenizer.load(folder)
    with torch.no_grad():
        encoded = [tokens(text, None, 16) for text in texts]
        return torch.cat([model(input_ids=torch.tensor([each.input_ids])).logits for each in encoded])


@pytest.mark.parametrize("family", FAMILIES)
def test_model_of_every_family_answers_train_as_before(family, data, tiny_folder, tmp_path):
    before = tiny_folder(family)
    made = prune_vocabulary(before, data, "seen", 16, tmp_path / "work")
    info, config = made.info.vocabulary, json.loads((tmp_path / "work" / "config.json").read_text())
    torch.testing.assert_close(answers(tmp_path / "work", TRAIN), answers(before, TRAIN), atol=1e-5, rtol=1e-5)
    assert (info.pieces_before, info.pieces) == (23, config["vocab_size"])
    assert made.info.shape.vocabulary == info.pieces < 20
    assert info.changed == {"train": 0.0, "select": 0.5, "test": 0.5}
    assert read_info(tmp_path / "work") == made.info
    model, positions = load(tmp_path / "work"), position_count(load(tmp_path / "work"))
    offset = 2 if FAMILIES[family].positions_after_padding else 0
    assert positions == info.positions == (16 + offset if FAMILIES[family].positions else None)
    assert word_embeddings(model).padding_idx == load(before).config.pad_token_id == config["pad_token_id"]


def test_plain_model_loads_with_transformers_alone(data, tiny_folder, tmp_path):
    before = tiny_folder("roberta")
    prune_vocabulary(before, data, "seen", 16, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(model).__name__ == "RobertaForSequenceClassification"
    assert (len(tokenizer), tokenizer.model_max_length) == (model.config.vocab_size, 16)
    logits = model(**tokenizer(TRAIN[0], return_tensors="pt")).logits
    torch.testing.assert_close(logits, answers(before, TRAIN[:1]), atol=1e-5, rtol=1e-5)
    assert len(model(**tokenizer("a " * 40, truncation=True, return_tensors="pt")).logits) == 1


def test_pruned_and_factorised_model_keeps_its_shape(data, tiny_model, tiny_folder, tiny_tokenizer, tmp_path):
    student = build_student(tiny_model("bert"), Student(factors=8))
    before = tiny_folder(remove_units(student, [[0, 2], [1]], [list(range(32)), list(range(16, 64))]))
    made = prune_vocabulary(before, data, "seen", 16, tmp_path)
    assert word_embeddings(load(tmp_path)).weight.shape == (made.info.vocabulary.pieces, 8)
    assert made.info.shape.heads == (2, 1)
    torch.testing.assert_close(answers(tmp_path, TRAIN), answers(before, TRAIN), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_exports_and_predictions_use_the_new_tokenizer(data, tiny_folder, tmp_path):
    folder, exported, quantized = (tmp_path / name for name in ("model", "onnx", "int8"))
    before = tiny_folder("bert")
    prune_vocabulary(before, data, "seen", 16, folder)
    for each in (exported, quantized):
        each.mkdir()
    assert build("onnx-fp32", folder, exported).vocabulary == read_info(folder).vocabulary
    build("onnx-int8", exported, quantized)
    wanted = [row["label"] for row in TextModel.open(before).predict(TRAIN)]
    for each in (folder, exported, quantized):
        assert [row["label"] for row in TextModel.open(each).predict(TRAIN)] == wanted


def test_texts_without_labels_count_too(data, tiny_folder, tmp_path):
    before, task = tiny_folder("bert"), load_prepared(data).info.task_info
    rows = [kind_of(task).from_input("fine", task)]
    made = prune_vocabulary(before, data, "seen", 16, tmp_path, unlabelled_rows=rows)
    assert made.info.vocabulary.changed == {"train": 0.0, "unlabelled": 0.0, "select": 0.0, "test": 0.0}


def test_frequent_pieces_alone_change_some_rows(data, tiny_folder, tmp_path):
    made = prune_vocabulary(tiny_folder("bert"), data, VocabularyRule(keep=8), 16, tmp_path)
    assert (made.info.vocabulary.rule, made.info.vocabulary.pieces) == ("keep 8", 8)
    assert made.info.vocabulary.changed["train"] > 0.5


@pytest.mark.parametrize(("keep", "warned"), [(8, True), (None, False)])
def test_rows_of_select_that_lose_their_words_are_a_warning(data, tiny_folder, tmp_path, keep, warned):
    console = Console("quiet", err=io.StringIO())
    rule = VocabularyRule(keep=keep) if keep else VocabularyRule(min_count=1)
    prune_vocabulary(tiny_folder("bert"), data, rule, 16, tmp_path, console=console)
    assert ("of the rows of select have words" in console.err.getvalue()) is warned


def test_a_second_removal_records_what_is_left_of_the_first_vocabulary(data, tiny_folder, tmp_path):
    first, same, fewer = (tmp_path / name for name in ("first", "same", "fewer"))
    kept = prune_vocabulary(tiny_folder("bert"), data, VocabularyRule(keep=12), None, first).info.vocabulary
    shortened = prune_vocabulary(first, data, "seen", 16, same).info.vocabulary
    assert shortened == kept.model_copy(update={"positions": 16})
    assert shortened.changed["train"] > 0
    again = prune_vocabulary(first, data, VocabularyRule(keep=8), 16, fewer).info.vocabulary
    assert (again.rule, again.pieces_before, again.pieces) == ("keep 8", 23, 8)
    assert (again.positions_before, again.positions) == (kept.positions_before, 16)


def test_a_corpus_that_would_be_cut_differently_is_an_error(data, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "select_pieces", lambda table, *_: table.required())
    with pytest.raises(ModelError, match=r"100.00% of the rows of train are tokenized differently"):
        prune_vocabulary(tiny_folder("bert"), data, "seen", 16, tmp_path)


WORDS = "a good film the plot was bad not so dull"
ROWS = {
    "classification": {"text": WORDS, "text_pair": "fine bit"},
    "multi_label": {"text": WORDS},
    "regression": {"text": WORDS, "text_pair": "of it"},
    "multiple_choice": {"text": "the plot", "choices": ["was bad", "a good film"]},
    "ranking": {"text": "the plot", "candidates": ["was bad", "a good film"]},
    "similarity": {"text": "the plot", "text_pair": "a good film"},
    "token_classification": {"words": WORDS.split()},
    "question_answering": {"question": "a plot or film", "context": f"{WORDS} " * 9},
}
HEADS = {
    "multiple_choice": "ForSequenceClassification",
    "token_classification": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
}


@pytest.mark.parametrize("kind", ROWS)
def test_rows_of_every_kind_make_the_same_examples(kind, tiny_model, tiny_tokenizer):
    task = TaskInfo(
        name="films", kind=kind, text=("a",), labels=("O", "B-x", "I-x"), metric="f1", max_length=16, max_windows=99
    )
    row, model = ROWS[kind], tiny_model("bert", head=HEADS.get(kind, "ForSequenceClassification"))
    pruned, fewer, info = prune_vocabulary_from_model(model, tiny_tokenizer, {"train": [row] * 3}, task, "seen", 16)
    assert info.changed == {"train": 0.0}
    assert info.pieces < info.pieces_before
    before, after = fast_tokenizer(model.config, tiny_tokenizer), fast_tokenizer(pruned.config, fewer)
    names = [{index: name for name, index in each.get_vocab().items()} for each in (tiny_tokenizer, fewer)]
    old, new = (kind_of(task).examples(row, task, each) for each in (before, after))
    assert len(old) == len(new)
    for one, other in zip(old, new, strict=True):
        pieces = [
            [name[int(index)] for index in each["input_ids"]] for name, each in zip(names, (one, other), strict=True)
        ]
        assert pieces[0] == pieces[1]
        assert all(np.array_equal(one[key], other[key]) for key in one if key != "input_ids")


@pytest.mark.parametrize(
    ("family", "trained", "tokenizer_class"),
    [("roberta", bpe, RobertaTokenizer), ("xlm-roberta", unigram, XLMRobertaTokenizer)],
)
def test_tokenizers_of_their_own_classes_keep_their_ids(family, trained, tokenizer_class, tiny_model, tiny_task):
    tokenizer, trainer = trained()
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    pieces = {"merges": [*map(tuple, model["merges"])]} if family == "roberta" else {}
    vocabulary = model["vocab"] if family == "roberta" else [*map(tuple, model["vocab"])]
    before = tokenizer_class(vocab=vocabulary, **pieces)
    model = tiny_model(family, vocab_size=len(before))
    rows = {"train": [{"text": text} for text in SEEN]}
    pruned, after, info = prune_vocabulary_from_model(model, before, rows, tiny_task, "seen", 32)
    assert (type(after), info.changed) == (tokenizer_class, {"train": 0.0})
    assert len(after) == info.pieces == pruned.config.vocab_size < len(before)
    assert after.pad_token_id == pruned.config.pad_token_id == 1
    pairs, names = ((pruned, after), (model, before)), ids_in_teacher("it", after, before, "h")
    for text in SEEN:
        assert names[after(text)["input_ids"]].tolist() == before(text)["input_ids"]
        ours, theirs = (each(**cut(text, return_tensors="pt")).logits for each, cut in pairs)
        assert torch.equal(ours, theirs)
