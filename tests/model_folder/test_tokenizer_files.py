"""Tokenizer files of model folders and exports: the task's length, no padding, nothing of the source's own use."""

import json

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from compress.data.tokenizer import TextTokenizer
from compress.errors import ModelError
from compress.export.comparison.parity_check import check_parity
from compress.model_folder.model_info import FolderInfo, TaskInfo
from compress.model_folder.tokenizer_files import (
    LENGTH,
    OF_A_CALL,
    SETTINGS,
    TOKENIZER,
    plain_settings,
    write_tokenizer_files,
)
from compress.models import load, load_tokenizer, save_model
from compress.models.load_save import replace_tokenizer_json
from compress.tasks import KINDS
from tests.conftest import WORDS, word_tokenizer
from tests.variant_builder import build

LONG = "a good film is not dull " * 20


def read(folder, name):
    return json.loads((folder / name).read_bytes())


@pytest.fixture
def stale_folder(tiny_model, tiny_task, tmp_path):
    """A folder as checkpoints are: padded to 48 tokens and cut at 48 by tokenizer.json, and at 512 by its settings."""

    def make(task=tiny_task, **changes):
        folder = tmp_path / "stale"
        content = word_tokenizer(WORDS)
        content.enable_padding(length=48, pad_token="[PAD]")
        content.enable_truncation(48)
        special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=content, model_max_length=512, **special)
        save_model(tiny_model("bert", **changes), tokenizer, folder, FolderInfo(step="tests", task=task))
        tokenizer.save_pretrained(folder)  # as it was before
        assert read(folder, SETTINGS)["max_length"] == 48
        content.save(str(folder / TOKENIZER))
        return folder

    return make


def check(folder, length, strategy="LongestFirst"):
    """Compare the files with what they should hold, and what `tokenizers` and transformers make of a long text."""
    settings, content = read(folder, SETTINGS), read(folder, TOKENIZER)
    assert settings[LENGTH] == length
    assert not set(settings) & set(OF_A_CALL)
    assert content["padding"] is None
    assert content["truncation"] == {"direction": "Right", "max_length": length, "strategy": strategy, "stride": 0}
    plain, theirs = Tokenizer.from_file(str(folder / TOKENIZER)), AutoTokenizer.from_pretrained(folder)
    texts = ("a film", LONG) if strategy == "OnlySecond" else (LONG,)
    ours = TextTokenizer.load(folder)(*texts, *(None,) * (2 - len(texts)), length)
    assert plain.encode(*texts).ids == theirs(*texts, truncation=True)["input_ids"] == list(ours.input_ids)
    assert len(ours.input_ids) == length
    assert len(plain.encode("a film", *("a",) * (len(texts) - 1)).ids) < 10
    assert theirs(["a film", "a film is good"], padding=True)["attention_mask"][0][-2:] == [0, 0]


def test_folders_of_tasks_have_their_length(stale_folder, tiny_task):
    folder = stale_folder()
    before = TextTokenizer.load(folder).digest()
    write_tokenizer_files(folder, tiny_task)
    check(folder, 32)
    assert TextTokenizer.load(folder).digest() == before
    written = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    write_tokenizer_files(folder, tiny_task)
    assert written == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_cut_as_compress_cuts_it(kind, stale_folder, tiny_task):
    folder = stale_folder()
    task = TaskInfo.model_validate({**dict(tiny_task), "kind": kind, "overlap": 8, "max_windows": 4})
    write_tokenizer_files(folder, task)
    check(folder, 32, "OnlySecond" if kind == "question_answering" else "LongestFirst")


def test_a_model_without_a_task_keeps_its_own_length_within_its_positions(stale_folder):
    folder = stale_folder(task=None)
    write_tokenizer_files(folder, None)
    check(folder, 64)
    settings = read(folder, SETTINGS)
    (folder / SETTINGS).write_text(json.dumps(settings | {LENGTH: 40}))
    write_tokenizer_files(folder, None)
    check(folder, 40)


def test_a_length_beyond_the_positions_is_theirs(stale_folder, tiny_task):
    folder = stale_folder(max_position_embeddings=24)
    write_tokenizer_files(folder, tiny_task)
    check(folder, 24)


def test_a_tokenizer_without_any_limit_is_not_cut(tmp_path, stale_folder):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / TOKENIZER).write_bytes((stale_folder() / TOKENIZER).read_bytes())
    write_tokenizer_files(tmp_path / "bare", None)
    assert [path.name for path in (tmp_path / "bare").iterdir()] == [TOKENIZER]
    assert read(tmp_path / "bare", TOKENIZER)["truncation"] is None
    assert len(Tokenizer.from_file(str(tmp_path / "bare" / TOKENIZER)).encode(LONG)) == 122


@pytest.mark.slow
def test_a_saved_model_and_its_exports_are_right_whatever_the_source_says(stale_folder, tiny_task, tmp_path):
    source = stale_folder()
    for variant, before in (("onnx-fp32", source), ("onnx-int8", tmp_path / "onnx-fp32")):
        (work := tmp_path / variant).mkdir()
        build(variant, before, work)
        check(work, 32)
    assert check_parity(source, tmp_path / "onnx-fp32").misses == []
    tokenizer = load_tokenizer(source)
    assert (tokenizer.backend_tokenizer.truncation, tokenizer.backend_tokenizer.padding) == (None, None)
    model = AutoTokenizer.from_pretrained(source)  # with truncation and padding of its own
    again = tiny_task.model_copy(update={"max_length": 20})
    save_model(load(source), model, tmp_path / "saved", FolderInfo(step="tests", task=again))
    check(tmp_path / "saved", 20)


def test_a_folder_of_a_short_task_does_not_limit_a_longer_one(stale_folder, tiny_task, tmp_path):
    folder = stale_folder()
    write_tokenizer_files(folder, tiny_task.model_copy(update={"max_length": 8}))
    tokenizer = load_tokenizer(folder)
    assert tokenizer.model_max_length > 512
    save_model(load(folder), tokenizer, tmp_path / "longer", FolderInfo(step="tests", task=None))
    check(tmp_path / "longer", 64)


def test_a_tokenizer_with_fewer_pieces_is_right_too(stale_folder, tiny_task, tmp_path):
    folder = stale_folder()
    fewer = replace_tokenizer_json(AutoTokenizer.from_pretrained(folder), read(folder, TOKENIZER), 32)
    save_model(load(folder), fewer, tmp_path / "fewer", FolderInfo(step="tests", task=tiny_task))
    check(tmp_path / "fewer", 32)


def test_settings_are_those_that_transformers_4_reads():
    written = {"tokenizer_class": "TokenizersBackend", "extra_special_tokens": ["<e>"], "pad_token": "[PAD]"}
    assert plain_settings(written, None) == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "additional_special_tokens": ["<e>"],
        "pad_token": "[PAD]",
    }
    assert plain_settings({"tokenizer_class": "BertTokenizer"}, None) == {"tokenizer_class": "BertTokenizer"}
    assert plain_settings({"model_max_length": 10**30, "max_length": 128}, 64) == {"model_max_length": 64}


def test_a_damaged_file_is_one_message(stale_folder, tiny_task):
    folder = stale_folder()
    (folder / TOKENIZER).write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        write_tokenizer_files(folder, tiny_task)


@pytest.mark.parametrize(("family", "has_types"), [("bert", True), ("distilbert", False), ("roberta", False)])
def test_pairs_have_the_arrays_that_the_model_takes(family, has_types, tiny_folder):
    encoded = AutoTokenizer.from_pretrained(folder := tiny_folder(family))("a film", "a plot")
    assert ("token_type_ids" in encoded) is has_types
    if has_types:
        assert encoded["token_type_ids"] == list(TextTokenizer.load(folder)("a film", "a plot", 32).token_type_ids)
