"""Encoded rows of a run's data step are encoded once for all steps."""

import os
import subprocess
import sys

import numpy as np
import pytest

from compress.data import encode
from compress.data.encode import encode_rows, encode_sample
from compress.data.encoded_cache import ENCODED_FOLDER, cache_entry, limit_size, read_entry
from compress.data.splits.row_store import ConcatenatedRows, RowWriter, StoredRows
from compress.data.tokenizer import TextTokenizer
from compress.model_folder.model_info import TaskInfo
from compress.pipeline.commands.clean import clean

TASK = TaskInfo(name="t", kind="classification", text=("text",), labels=("x", "y"), metric="accuracy", max_length=6)
TEXTS = ["a", "a b c d e f", "b c", "d d d d", "e"]


@pytest.fixture
def stored(tmp_path):
    """Writes rows as a run's data step does: ``stored(name, rows)``."""

    def make(name="data-1", rows=None):
        folder = tmp_path / ".steps" / name
        folder.mkdir(parents=True, exist_ok=True)
        with RowWriter(folder, "train") as writer:
            for row in rows or [{"text": text, "text_pair": None, "label": len(text) % 2} for text in TEXTS]:
                writer.add(row)
        return StoredRows(folder, "train")

    return make


@pytest.fixture
def calls(monkeypatch):
    """The texts that are tokenized from now on."""
    texts, tokenize = [], TextTokenizer.__call__
    monkeypatch.setattr(TextTokenizer, "__call__", lambda *given: texts.append(given[1]) or tokenize(*given))
    return texts


def entries(tmp_path):
    return sorted(path for path in (tmp_path / ".steps" / ENCODED_FOLDER).glob("*") if path.is_dir())


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("classification", {"label": 1}),
        ("classification", {"label": 1, "soft_labels": [0.25, 0.75], "labelled": False}),
        ("multi_label", {"label": [0.0, 1.0]}),
        ("regression", {"label": 2.5}),
    ],
)
def test_a_second_step_encodes_nothing(kind, fields, stored, calls, word_folder, tmp_path):
    rows = [{"text": text, "text_pair": None, **fields} for text in TEXTS]
    task = TASK.model_copy(update={"kind": kind})
    plain, first = (encode_rows(given, task, TextTokenizer.load(word_folder)) for given in (rows, stored(rows=rows)))
    del calls[:]
    again = encode_rows(stored(rows=rows), task, TextTokenizer.load(word_folder))
    assert calls == []
    for encoded in (first, again):
        assert encoded.digest() == plain.digest()
        assert encoded.truncated == plain.truncated == pytest.approx(1 / 5)
        result, expected = encoded.batch([3, 0]), plain.batch([3, 0])
        assert result.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(result[name], array)
            assert result[name].dtype == array.dtype
    assert len(entries(tmp_path)) == 1


def test_texts_without_labels_are_encoded_once_with_train(stored, calls, word_folder, tmp_path):
    texts = stored("unlabelled-1", [{"text": "c d", "text_pair": None}])
    rows, tokens = ConcatenatedRows(stored(), [texts], TASK), TextTokenizer.load(word_folder)
    first = encode_rows(rows, TASK, tokens)
    assert calls == [*TEXTS, "c d"]
    del calls[:]
    again = encode_rows(ConcatenatedRows(stored(), [stored("unlabelled-1", [*texts])], TASK), TASK, tokens)
    assert (calls, again.digest(), len(entries(tmp_path))) == ([], first.digest(), 1)
    encode_rows(ConcatenatedRows(stored(), [[*texts]], TASK), TASK, tokens)
    assert len(calls) == 6  # rows in memory, as augmented ones, and no step before has encoded train
    assert len(entries(tmp_path)) == 1


@pytest.mark.parametrize("fields", [{"label": 1}, {"label": 1, "soft_labels": [0.25, 0.75]}])
def test_rows_of_train_that_were_encoded_are_not_tokenized_again_for_others_after_them(
    fields, stored, calls, word_folder
):
    train = [{"text": text, "text_pair": None, **fields} for text in TEXTS]
    texts, tokens = [{"text": "c d", "text_pair": None}], TextTokenizer.load(word_folder)
    expected = encode_rows(ConcatenatedRows(train, [texts], TASK), TASK, tokens)
    encode_rows(stored(rows=train), TASK, tokens)
    del calls[:]
    for others in ([stored("unlabelled-1", texts)], [texts]):  # results of a step, or made as augmented ones
        encoded = encode_rows(ConcatenatedRows(stored(rows=train), others, TASK), TASK, tokens)
        assert calls == ["c d"]
        del calls[:]
        assert encoded.digest() == expected.digest()
        assert encoded.truncated == expected.truncated
        batch, other = encoded.batch([5, 1]), expected.batch([5, 1])
        for name, array in other.items():
            np.testing.assert_array_equal(batch[name], array)


def test_a_sample_is_taken_from_what_an_earlier_step_encoded(stored, calls, word_folder, tmp_path):
    tokens, rows, chosen = TextTokenizer.load(word_folder), stored(), np.array([3, 0, 4])
    alone, examples = encode_sample(rows, chosen, TASK, tokens)
    assert (calls, examples.tolist(), entries(tmp_path)) == ([TEXTS[index] for index in chosen], [0, 1, 2], [])
    encode_rows(rows, TASK, tokens)
    del calls[:]
    encoded, examples = encode_sample(rows, chosen, TASK, tokens)
    assert (calls, examples.tolist()) == ([], chosen.tolist())
    cached, expected = encoded.batch(examples), alone.batch([0, 1, 2])
    for name in expected.keys() - {"index"}:
        np.testing.assert_array_equal(cached[name], expected[name])


def test_what_changes_the_encoding_has_an_entry_of_its_own(stored, word_folder):
    tokens, rows = TextTokenizer.load(word_folder), stored()
    same = cache_entry(rows, TASK, tokens)
    assert cache_entry(rows, TASK.model_copy(update={"name": "other", "threshold": 0.5}), tokens) == same
    assert cache_entry(stored("data-2"), TASK, TextTokenizer.load(word_folder)) == same
    shorter = TextTokenizer.load(word_folder)
    shorter.longest = 4  # a model of fewer positions must be refused, not served
    (word_folder / "tokenizer.json").write_text((word_folder / "tokenizer.json").read_text().replace('"a"', '"q"'))
    others = [
        cache_entry(rows, TASK.model_copy(update={"max_length": 5}), tokens),
        cache_entry(stored("data-3", [{"text": "b", "text_pair": None, "label": 0}]), TASK, tokens),
        cache_entry(rows, TASK, shorter),
        cache_entry(rows, TASK, TextTokenizer.load(word_folder)),
    ]
    assert len({same, *others}) == 5


def test_rows_outside_a_run_leave_nothing(word_folder, tmp_path):
    with RowWriter(tmp_path, "train") as writer:
        writer.add({"text": "a", "text_pair": None, "label": 0})
    encode_rows(StoredRows(tmp_path, "train"), TASK, TextTokenizer.load(word_folder))
    assert not list(tmp_path.rglob(ENCODED_FOLDER))


@pytest.mark.parametrize("damage", ["input_ids.bin", "index.npz", "encoded.json"])
def test_a_damaged_entry_is_written_again(damage, stored, calls, word_folder, tmp_path):
    tokens, rows = TextTokenizer.load(word_folder), stored()
    digest = encode_rows(rows, TASK, tokens).digest()
    (entry,) = entries(tmp_path)
    (entry / damage).write_bytes((entry / damage).read_bytes()[:-8])
    assert read_entry(entry) is None
    assert encode_rows(rows, TASK, tokens).digest() == digest
    assert len(calls) == 2 * len(TEXTS)
    assert read_entry(entry) is not None


def test_a_cache_that_cannot_be_written_is_done_without(stored, word_folder, tmp_path, monkeypatch):
    def full(folder):
        raise OSError("no space left on device")

    monkeypatch.setattr(encode, "new_folder", full)
    encoded = encode_rows(stored(), TASK, TextTokenizer.load(word_folder))
    assert (len(encoded), entries(tmp_path)) == (5, [])


def test_least_recently_used_entries_go_and_open_ones_stay_readable(stored, word_folder, tmp_path):
    tokens, rows, made = TextTokenizer.load(word_folder), stored(), []
    for used, length in enumerate((4, 5, 6)):
        task = TASK.model_copy(update={"max_length": length})
        made.append(encode_rows(rows, task, tokens))
        entry = cache_entry(rows, task, tokens)
        os.utime(entry / "encoded.json", (used, used))
    size = sum(path.stat().st_size for path in entry.iterdir())
    limit_size(entry.parent, limit=2 * size)
    assert not cache_entry(rows, TASK.model_copy(update={"max_length": 4}), tokens).exists()
    assert len(entries(tmp_path)) == 2
    assert made[0].batch([1])["input_ids"].shape == (1, 4)
    limit_size(entry.parent, limit=0)
    assert entries(tmp_path) == [entry]  # the newest stays, whatever its size


SCRIPT = """
import sys
from pathlib import Path
from compress.data.encode import encode_rows, encode_sample
from compress.data.splits.row_store import StoredRows
from compress.data.tokenizer import TextTokenizer
from compress.model_folder.model_info import TaskInfo
rows, task = StoredRows(Path(sys.argv[1]), "train"), TaskInfo.model_validate_json(sys.argv[3])
print(encode_rows(rows, task, TextTokenizer.load(Path(sys.argv[2]))).digest())
"""


def test_two_processes_at_once(stored, word_folder, tmp_path):
    stored(rows=[{"text": f"a b {number}", "text_pair": None, "label": 0} for number in range(2000)])
    command = [sys.executable, "-c", SCRIPT, tmp_path / ".steps" / "data-1", word_folder, TASK.model_dump_json()]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    digests = {process.communicate(timeout=60)[0] for process in processes}
    assert len(digests) == 1
    assert len(digests.pop()) == 65
    assert len(entries(tmp_path)) == 1


def test_clean_removes_encoded_rows(stored, word_folder, tmp_path):
    encode_rows(stored(), TASK, TextTokenizer.load(word_folder))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock.json").write_text('{"steps": {"data": "data-1"}}')
    (row,) = clean(tmp_path)
    assert row["folder"].endswith(ENCODED_FOLDER)
    assert row["bytes"] > 0
    assert not (tmp_path / ".steps" / ENCODED_FOLDER).exists()
    assert clean(tmp_path) == []
