import numpy as np
import pytest

from compress.errors import ModelError
from compress.runtime.row_by_row import run_rows

IDS = np.array([[5, 6, 0, 0], [7, 8, 9, 0], [0, 0, 0, 0]])
BATCH = {"input_ids": IDS, "attention_mask": (IDS > 0).astype(int), "labels": np.zeros(3)}
INPUTS = ("input_ids", "attention_mask")


def run(*, name, give, length=lambda tokens: tokens):
    seen = []

    def model(row):
        seen.append(row)
        return {name: give(row["input_ids"])}

    return run_rows(INPUTS, BATCH, length, model)[name], seen


def test_each_row_runs_without_its_padding():
    logits, seen = run(name="logits", give=lambda ids: ids.sum(axis=1, keepdims=True).astype(np.float32))
    assert [row["input_ids"].tolist() for row in seen] == [[[5, 6]], [[7, 8, 9]], [[0]]]
    assert [set(row) for row in seen] == [set(INPUTS)] * 3
    assert logits.tolist() == [[11], [24], [0]]


def test_rows_are_padded_to_the_length_that_the_model_reads():
    _, seen = run(name="logits", give=lambda ids: ids[:, :1].astype(np.float32), length=lambda tokens: 4)
    assert [row["input_ids"].tolist() for row in seen] == [[[5, 6, 0, 0]], [[7, 8, 9, 0]], [[0, 0, 0, 0]]]
    assert seen[0]["attention_mask"].tolist() == [[1, 1, 0, 0]]


@pytest.mark.parametrize("length", [lambda tokens: tokens, lambda tokens: 8])
def test_outputs_per_token_are_as_long_as_the_batch(length):
    starts, _ = run(name="start_logits", give=lambda ids: ids.astype(np.float32), length=length)
    assert starts.tolist() == IDS.tolist()
    logits, _ = run(name="logits", give=lambda ids: ids[:, :, None].astype(np.float32), length=length)
    assert logits.shape == (3, 4, 1)


def test_a_gap_in_the_mask_is_no_end():
    seen = []
    arrays = {"input_ids": np.array([[5, 6, 7, 0]]), "attention_mask": np.array([[1, 0, 1, 0]])}
    run_rows(INPUTS, arrays, lambda tokens: tokens, lambda row: seen.append(row) or {"logits": np.zeros((1, 1))})
    assert seen[0]["attention_mask"].tolist() == [[1, 0, 1]]


def test_a_missing_input_is_named():
    with pytest.raises(ModelError, match="attention_mask was not given"):
        run_rows(INPUTS, {"input_ids": IDS}, lambda tokens: tokens, lambda row: row)


@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (2, 3, 4)])
def test_arrays_of_other_shapes_are_refused(shape):
    arrays = dict.fromkeys(INPUTS, np.ones(shape, np.int64))
    with pytest.raises(ModelError, match=r"takes arrays of \(rows, tokens\), all of one shape and not empty; got"):
        run_rows(INPUTS, arrays, lambda tokens: tokens, lambda row: row)
