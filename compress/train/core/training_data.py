"""The data of a training: encoded training rows, and an evaluation on select by the task's metric."""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.data.encode import encode_rows, training_examples
from compress.data.splits.row_store import ConcatenatedRows
from compress.data.splits.split_indices import DISAGREEMENT
from compress.data.tokenizer import TextTokenizer
from compress.measure.predict_rows import Forward, embed_encoded, predict_encoded
from compress.model_folder.model_info import TaskInfo
from compress.models.heads import head_of
from compress.models.read_checkpoint import quiet
from compress.tasks import kind_of, primary_metric
from compress.tasks.base import Arrays, Row
from compress.train.core.auto_settings import TrainingFacts
from compress.train.loop import Evaluate
from compress.train.objective import Examples, forward


@dataclass(frozen=True)
class TrainingData:
    """Encoded training rows and the function that scores a model."""

    task: TaskInfo
    train: Examples
    evaluate: Evaluate | None
    larger_is_better: bool
    noise: float = 0.0
    """Standard error of the difference of two scores on select, as assumed before there are any."""

    def facts(self, hidden: int = 0) -> TrainingFacts:
        """Return what settings left to `auto` depend on, for a model of this hidden size."""
        rows = len(self.train.lengths)
        return TrainingFacts(
            rows=rows,
            problem=kind_of(self.task).problem,
            hidden=hidden,
            examples_per_row=len(self.train.example_lengths) / rows,
            has_select=self.evaluate is not None,
        )


def from_rows(
    train: Sequence[Row],
    select: Sequence[Row],
    task: TaskInfo,
    tokens: TextTokenizer,
    console: Console,
    documents: Sequence[Row] = (),
    *,
    unlabelled: Sequence[Row] = (),
    augmented: Sequence[Row] = (),
    teacher_ids: NDArray[np.int64] | None = None,
) -> TrainingData:
    """Encode canonical rows; without select rows nothing is evaluated and the last weights are the result.

    Args:
        train: rows with labels.
        select: rows on which models are compared.
        task: the task of all rows.
        tokens: what cuts texts into pieces.
        console: where the number of truncated rows is logged.
        documents: the documents that queries of select are searched in, for retrieval.
        unlabelled: rows without labels, encoded after those of train.
        augmented: changed rows of train, without labels, encoded last; their examples are not counted as `lasting`.
        teacher_ids: the teacher's id of each piece, where ``tokens`` are those of a student with a part of its pieces.
    """
    joined = ConcatenatedRows(train, [unlabelled, augmented], task) if len(unlabelled) or len(augmented) else None
    encoded = encode_rows(train if joined is None else joined, task, tokens)
    if joined is not None:
        encoded.origin_of = joined.origin
    encoded.teacher_ids = teacher_ids
    encoded.cacheable = int(encoded.counts[: len(train) + len(unlabelled)].sum())
    if encoded.truncated:
        console.note(f"{encoded.truncated:.1%} of the training rows are too long and are truncated")
    evaluate = make_evaluator(select, task, tokens, documents) if len(select) else None
    larger_is_better = primary_metric(task).larger_is_better
    noise = math.sqrt(DISAGREEMENT / len(select)) if len(select) and larger_is_better else 0.0
    return TrainingData(task, training_examples(encoded, task), evaluate, larger_is_better, noise)


def fast_tokenizer(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> TextTokenizer:
    """Return the fast tokenizer of a model, loaded from the files that its folder will have."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return TextTokenizer.load(Path(folder), config.name_or_path or "in memory")


BATCH = 64
Compute = Callable[[PreTrainedModel, Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]]
"""A model's outputs for a batch."""


def make_evaluator(
    rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer, documents: Sequence[Row] = ()
) -> Evaluate:
    """Return a function that scores a model on these rows in the task's primary metric; they are encoded once."""
    score = make_scorer(rows, task, tokens, documents)
    return lambda model: score(predict_function(model))


def make_scorer(
    rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer, documents: Sequence[Row] = ()
) -> Callable[[Forward], float]:
    """Return a function that scores what runs batches, as `make_evaluator` does for models.

    Where decisions depend on a threshold, the best one for these rows is used; the model's will be tuned on them too.
    """
    kind = kind_of(task)
    gold, encoded = kind.gold(rows), encode_rows(rows, task, tokens)
    searched = encode_rows(documents, task, tokens) if kind.searches else None

    def score(run: Forward) -> float:
        predictions = predict_encoded(run, encoded, rows, task, BATCH)
        if searched is not None:
            predictions = kind.search(predictions, embed_encoded(run, searched, task, BATCH), task)
        decided = kind.apply_threshold(predictions, kind.tune_threshold(predictions, gold, task))
        return float(kind.score(decided, gold, task)[task.metric])

    return score


def predict_function(model: PreTrainedModel, compute: Compute = forward) -> Forward:
    """Return the model as a function from a batch's arrays to its outputs, as ``compute`` makes them."""
    names = head_of(model).outputs

    def run(arrays: Arrays) -> Arrays:
        tensors = {name: torch.from_numpy(array).to(model.device) for name, array in arrays.items()}
        with torch.no_grad():
            outputs = compute(model, tensors)
        return {name: outputs[name].float().cpu().numpy() for name in names}

    return run
