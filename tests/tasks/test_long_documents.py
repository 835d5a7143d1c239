"""Texts beyond max_length: an example per window, predictions pooled over windows, against slow references."""

import numpy as np
import pytest

from compress.data.encode import encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.model_folder.model_info import TaskInfo
from compress.tasks import KINDS

LABELS = ("x", "y")
HOW = ("mean", "max", "attention")
COUNTS = (1, 3, 2)


def about(kind: str, long: str) -> TaskInfo:
    return TaskInfo(
        name="t",
        kind=kind,
        text=("text",),
        labels=() if kind == "regression" else LABELS,
        metric=KINDS[kind].metrics[0].name,
        max_length=5,
        long=long,
        overlap=1,
        max_windows=4,
    )


def slowly(logits: np.ndarray, long: str) -> np.ndarray:
    """The logits of one text from those of its windows."""
    if long == "mean":
        return sum(logits) / len(logits)
    if long == "max":
        return np.array([max(column) for column in logits.T])
    odds = [np.exp(window[-1]) for window in logits]
    return sum(odd * window[:-1] for odd, window in zip(odds, logits, strict=True)) / sum(odds)


@pytest.mark.parametrize("long", HOW)
@pytest.mark.parametrize("kind", ["classification", "multi_label", "regression"])
def test_windows_of_a_text_give_one_prediction(kind, long):
    task, one = about(kind, long), KINDS[kind]
    width = max(1, len(task.labels)) + (long == "attention")
    assert one.output_count(task) == width
    logits = np.random.default_rng(0).normal(size=(sum(COUNTS), width))
    answers = one.predictions(one.decode({"logits": logits}, {}, task), COUNTS, [{}] * 3, task)
    parts = np.split(logits, np.cumsum(COUNTS)[:-1])
    expected = np.array([slowly(part, long) for part in parts])
    if kind == "classification":
        expected = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    if kind == "multi_label":
        expected = 1 / (1 + np.exp(-expected))
    assert answers == pytest.approx(expected.reshape(answers.shape), rel=1e-5)


@pytest.mark.parametrize("kind", ["classification", "multi_label", "regression"])
def test_windows_are_trained_together_with_the_label_of_their_text(kind, word_folder):
    label = {"classification": 1, "multi_label": [0.0, 1.0], "regression": 3.5}[kind]
    row = {"text": "a b c d e a b", "text_pair": None, "label": label}
    task = about(kind, "mean")
    encoded = encode_rows([row, {**row, "text": "a"}], task, TextTokenizer.load(word_folder))
    assert encoded.counts.tolist() == [3, 1]  # three tokens per window, of which neighbours share one
    assert (encoded.batch(range(4))["labels"] == np.array(label, np.float32)).all()
    assert KINDS[kind].keep_row_together(task)
    assert not KINDS[kind].keep_row_together(about(kind, "cut"))


@pytest.mark.parametrize(("long", "share"), [("cut", 2 / 3), ("mean", 1 / 3)])
def test_what_no_window_reaches_counts_as_cut(long, share, word_folder):
    texts = ("a b", "a b c d e a b c", "a b c d e " * 4)  # fits; fits into four windows; does not
    rows = [{"text": text, "text_pair": None, "label": 0} for text in texts]
    assert encode_rows(rows, about("classification", long), TextTokenizer.load(word_folder)).truncated == pytest.approx(
        share
    )


def test_a_first_text_takes_at_most_half_of_a_window(word_folder):
    task = about("classification", "mean").model_copy(update={"text": ("text", "other"), "max_length": 8})
    rows = [{"text": text, "text_pair": "d e", "label": 0} for text in ("a b", "a b c d " * 50)]
    encoded = encode_rows(rows, task, TextTokenizer.load(word_folder))
    assert encoded.counts.tolist() == [1, 2]
    assert encoded.example(1)["input_ids"].tolist() == [2, 4, 5, 6, 7, 3, 7, 3]
    assert encoded.example(2)["input_ids"].tolist() == [2, 4, 5, 6, 7, 3, 8, 3]
    assert encoded.truncated == pytest.approx(1 / 2)
