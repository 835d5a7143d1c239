"""Rows through a model: order, batches, and what is kept."""

import numpy as np
import pytest

from compress.data.tokenizer import TextTokenizer
from compress.measure.predict_rows import decode_examples, embed_documents, predict_rows
from compress.model_folder.model_info import TaskInfo
from compress.tasks import KINDS

TASK = TaskInfo(name="made", kind="regression", text=("text",), metric="spearman", max_length=16)


class Lengths:
    lengths = np.array([5, 1, 3, 1, 4])

    def __len__(self):
        return len(self.lengths)

    def batch(self, indices):
        width = self.lengths[indices].max()
        return {"input_ids": np.repeat(np.asarray(indices)[:, None], width, axis=1)}


def test_outputs_keep_the_order_of_examples_in_batches_by_length():
    shapes = []

    def doubles(arrays):
        shapes.append(arrays["input_ids"].shape)
        return {"logits": arrays["input_ids"][:, :1].astype(np.float32) * 2}

    decoded = decode_examples(doubles, Lengths(), TASK, batch=2)
    assert [float(each[0]) for each in decoded] == [0, 2, 4, 6, 8]
    assert shapes == [(2, 1), (2, 4), (1, 5)]


@pytest.mark.parametrize(("how", "expected"), [("mean", 2.0), ("max", 3.0)])
def test_windows_of_a_long_row_make_one_answer(word_folder, how, expected):
    """The made-up model answers with how many pieces it sees beside the special ones."""
    task = TASK.model_copy(update={"long": how, "max_length": 5, "max_windows": 8})
    rows = [{"text": "a b c d", "text_pair": None}, {"text": "a", "text_pair": None}]
    answers, encoded = predict_rows(
        lambda arrays: {"logits": arrays["attention_mask"].sum(axis=1, keepdims=True) - 2.0},
        rows,
        task,
        TextTokenizer.load(word_folder),
        4,
    )
    assert encoded.counts.tolist() == [2, 1]
    assert answers.tolist() == [expected, 1.0]
    assert KINDS["regression"].keep_row_together(task)


def test_documents_are_embedded_once_and_truncation_is_reported(word_folder):
    """The made-up model embeds a text by how many pieces it sees beside the special ones."""
    task, tokens, seen = (
        TASK.model_copy(update={"kind": "retrieval", "max_length": 5}),
        TextTokenizer.load(word_folder),
        [],
    )

    def run(arrays):
        seen.extend(arrays["input_ids"].tolist())
        count = arrays["attention_mask"].sum(axis=1) - 2.0
        return {"sentence_embedding": np.stack([count == 1, count == 2, count == 3], axis=1).astype(np.float32)}

    documents = [{"document": text} for text in ("a b c d", "a", "b c", "d e f a b")]
    searched = embed_documents(run, documents, task, tokens, 2)
    assert searched.embeddings.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert searched.truncated == 0.5
    assert len(seen) == 4
    for query, result in (("a b", [2, 0, 1, 3]), ("f", [1, 0, 2, 3])):
        answers, encoded = predict_rows(run, [{"query": query}], task, tokens, 2, searched)
        assert answers["found"].tolist() == [result]
        assert encoded.truncated == 0.0
    assert len(seen) == 6
    assert embed_documents(run, (), TASK, tokens, 2) is None
