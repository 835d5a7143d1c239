"""Rows of train for quantizers that observe ranges on them or compare scores."""

import numpy as np


def sample_batches(rows=16):
    """Padded batches of rows of different lengths."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(3, 12, rows)
    ids = generator.integers(4, 20, (rows, 12))
    mask = (np.arange(12) < lengths[:, None]).astype(np.int64)
    arrays = {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}
    return [{name: array[first : first + 4] for name, array in arrays.items()} for first in range(0, rows, 4)]


def labelled_rows(labels=(0, 1)):
    """Films that were called good and bad."""
    texts = ("a good film", "the plot is bad", "so very dull", "it was great fine", "not bad", "the film of it")
    return [{"text": text, "label": labels[index % len(labels)]} for index, text in enumerate(texts * 4)]
