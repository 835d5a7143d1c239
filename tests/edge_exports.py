"""What the tests of edge formats share: models of every task kind, and what every export must do."""

from importlib.util import find_spec

import numpy as np
import pytest

from compress.model_folder.model_info import TaskInfo
from compress.models.heads import HEADS
from compress.runtime import open_predictor
from compress.tasks import KINDS
from compress.variants import VARIANTS

EDGE_VARIANTS = ("executorch-fp32", "executorch-int8", "litert-fp32", "litert-int8")
LABELS = {"multi_label": ("bad", "good", "dull"), "token_classification": ("O", "B-x", "I-x")}
OTHER_KINDS = sorted(set(KINDS) - {"classification"})


def model_of_kind(kind, tiny_model, tiny_folder):
    """Return the folder of a tiny model of a task kind."""
    columns = tuple(KINDS[kind].defaults.get("text", ["text"]))
    labels = LABELS.get(kind, ())
    task = TaskInfo(name="films", kind=kind, text=columns, labels=labels, metric="x", max_length=32, max_answer=4)
    outputs = tuple(map(str, range(KINDS[kind].output_count(task))))
    head = HEADS[KINDS[kind].head].suffix
    return tiny_folder(tiny_model("bert", labels=outputs, head=head, sentence_size=8), task)


def needs_runtime(variant):
    """Skip a test where the library that builds a variant is not installed."""
    library = {"executorch": "executorch", "litert": "litert_torch"}[VARIANTS[variant].format]
    if find_spec(library) is None:  # importing it takes long
        pytest.skip(f"{library} is not installed")


def padded_batch(rows=3, length=11):
    """Return rows of different lengths, with padding."""
    lengths = np.linspace(2, length, rows).astype(int)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    ids = np.random.default_rng(0).integers(4, 20, mask.shape) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}


def largest_difference(folder, other):
    """Return the largest difference between two folders' logits on a padded batch."""
    ours, theirs = (open_predictor(each).predict(padded_batch())["logits"] for each in (folder, other))
    return float(np.abs(ours - theirs).max())
