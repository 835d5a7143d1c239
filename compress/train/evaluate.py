"""Score a torch model on rows by the task's metric."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from compress.data.encode import encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.measure.predict_rows import Forward, embed_encoded, predict_encoded
from compress.model_info import TaskInfo
from compress.models.heads import head_of
from compress.tasks import kind_of
from compress.tasks.base import Arrays, Row
from compress.train.loop import Evaluate
from compress.train.objective import forward

BATCH = 64


def make_evaluator(
    rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer, documents: Sequence[Row] = ()
) -> Evaluate:
    """Return a function that scores a model on these rows in the task's primary metric; they are encoded once.

    Where decisions depend on a threshold, the best one for these rows is used; the model's will be tuned on them too.
    """
    kind = kind_of(task)
    gold, encoded = kind.gold(rows), encode_rows(rows, task, tokens)
    searched = encode_rows(documents, task, tokens) if kind.searches else None

    def score(model: PreTrainedModel) -> float:
        run = predict_function(model)
        predictions = predict_encoded(run, encoded, rows, task, BATCH)
        if searched is not None:
            predictions = kind.search(predictions, embed_encoded(run, searched, task, BATCH), task)
        decided = kind.apply_threshold(predictions, kind.tune_threshold(predictions, gold, task))
        return float(kind.score(decided, gold, task)[task.metric])

    return score


def predict_function(model: PreTrainedModel) -> Forward:
    """Return the model as a function from a batch's arrays to its outputs."""
    names = head_of(model).outputs

    def run(arrays: Arrays) -> Arrays:
        tensors = {name: torch.from_numpy(array).to(model.device) for name, array in arrays.items()}
        with torch.no_grad():
            outputs = forward(model, tensors)
        return {name: outputs[name].float().cpu().numpy() for name in names}

    return run
