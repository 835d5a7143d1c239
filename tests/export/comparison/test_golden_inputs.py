import numpy as np
import pytest
from tokenizers import Tokenizer, models

from compress.data.tokenizer import TextTokenizer
from compress.export.comparison.golden_inputs import (
    GOLDEN_TEXTS,
    LONG,
    MAX_LENGTH,
    MAX_WINDOWS,
    golden_batches,
    golden_batches_from_tokenizer,
    golden_inputs,
)
from compress.export.comparison.parity import compare_groups, total
from compress.model_folder.model_info import TaskInfo
from compress.models.heads import HEADS
from compress.runtime import RUN_MODES, open_predictor
from compress.tasks import KINDS
from tests.conftest import WORDS, word_tokenizer

GROUPS = {*GOLDEN_TEXTS, LONG}


def info_of(kind, **settings):
    columns = KINDS[kind].defaults.get("text", ["text"])
    return TaskInfo(**{"name": "t", "kind": kind, "text": columns, "metric": "x", "max_length": 32, **settings})


def tokens(longest=64):
    return TextTokenizer(word_tokenizer(WORDS), 0, longest)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gets_every_group_alone_and_padded(kind):
    groups = golden_batches_from_tokenizer(tokens(), info_of(kind))
    assert set(groups) == GROUPS
    for batches in groups.values():
        alone, (together,) = batches.values()
        assert min(batches) == 1
        assert len(alone) == len(together["input_ids"])
        assert all(batch["attention_mask"].all() for batch in alone)
        np.testing.assert_array_equal(
            [batch["attention_mask"].sum() for batch in alone], together["attention_mask"].sum(axis=1)
        )
    assert max(batch["input_ids"].shape[1] for batch in groups[LONG][1]) == 32
    assert not all((together["attention_mask"] == 1).all() for _, (together,) in map(dict.values, groups.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_every_kind_reads_them(kind, tiny_model, tiny_folder):
    labels = {"token_classification": ("O", "B-x", "I-x"), "classification": ("a", "b"), "multi_label": ("a", "b")}
    task = info_of(kind, labels=labels.get(kind, ()))
    outputs = tuple(map(str, range(KINDS[kind].output_count(task))))
    folder = tiny_folder(tiny_model("bert", labels=outputs, head=HEADS[KINDS[kind].head].suffix, sentence_size=8), task)
    fp32, bf16 = open_predictor(folder), open_predictor(folder, variant=RUN_MODES["torch-bf16"])
    parities = compare_groups(fp32, bf16, golden_batches(folder, task), task)
    assert set(parities) == GROUPS
    assert all(parity.max_abs_difference > 0 for parity in parities.values())
    assert (total(parities.values()).decisions > 0) == (kind in {*labels, "question_answering"})


def test_a_text_is_shaped_as_the_task_reads_it():
    assert golden_inputs(info_of("classification"))["short"] == GOLDEN_TEXTS["short"]
    pairs = golden_inputs(info_of("classification", text=("one", "other")))["short"]
    assert len(pairs) == len(GOLDEN_TEXTS["short"])
    assert pairs[0] == GOLDEN_TEXTS["short"][:2]
    assert golden_inputs(info_of("multiple_choice"))["short"][0] == GOLDEN_TEXTS["short"][:3]
    long = golden_inputs(info_of("question_answering"))[LONG]
    assert [pair.index("a") for pair in long] == [1, 0]  # a long question, and a long context


def test_texts_that_a_kind_refuses_are_left_out():
    groups = golden_batches_from_tokenizer(tokens(), info_of("token_classification"))
    assert max(groups["short"]) == len([text for text in GOLDEN_TEXTS["short"] if text.strip()])


def test_rows_without_tokens_are_left_out():
    bare = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2}, unk_token="[UNK]"))  # without special tokens
    groups = golden_batches_from_tokenizer(TextTokenizer(bare, 0), info_of("classification"))
    assert max(groups["short"]) == len(GOLDEN_TEXTS["short"]) - 1


def test_without_a_task_single_texts_are_encoded():
    assert max(golden_batches_from_tokenizer(tokens(), None)["short"]) == len(GOLDEN_TEXTS["short"])


@pytest.mark.parametrize(("longest", "length"), [(20, 20), (None, MAX_LENGTH), (8192, MAX_LENGTH)])
def test_rows_fit_the_model_and_the_memory(longest, length):
    groups = golden_batches_from_tokenizer(tokens(longest), info_of("classification", max_length=8192))
    assert groups[LONG][1][0]["input_ids"].shape == (1, length)


def test_long_texts_are_read_in_few_windows():
    task = info_of("classification", long="mean", overlap=8, max_windows=16)
    groups = golden_batches_from_tokenizer(tokens(), task)
    assert max(groups[LONG]) == MAX_WINDOWS + 1  # and one of the short text
