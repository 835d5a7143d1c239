"""Held-out losses: how well a model predicts masked words, and pairs, of documents that it was not trained on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.batch_arrays import IGNORED_LABEL
from compress.data.encode import batches_by_length
from compress.errors import DataError
from compress.pretrain.methods.bert_pretraining import MaskedLMObjective, predict_at, word_losses
from compress.pretrain.pretrain_schema import MaskedLM
from compress.pretrain.text.sentence_packing import NEXT_SENTENCE, PackedExamples
from compress.train.loop import Evaluate
from compress.train.objective import Objective

BATCH = 64
MOST_SEQUENCES = 2_000
"""Sequences that are scored at the end, spread over all of the part `held_out`."""
MOST_DURING_TRAINING = 1_000
"""The same of the part `select`, at every evaluation."""
MASK_SEED = 1 << 31
"""Seed of the masks of held-out sequences: above those of recipes, and the same whatever theirs."""


@dataclass(frozen=True)
class HeldOutScores:
    """The scores of a model, piece by piece and pair by pair."""

    losses: NDArray[np.float64]
    """Of each masked piece."""
    targets: NDArray[np.int64]
    """The true id of each masked piece."""
    before: NDArray[np.int64]
    """The true id of the piece before it."""
    documents: NDArray[np.int64]
    """The document of each masked piece."""
    pairs_right: NDArray[np.float64]
    """1 for pairs that are classified right; empty for models without a head for pairs."""
    pair_documents: NDArray[np.int64]


def sample(examples: PackedExamples, most: int = MOST_SEQUENCES) -> NDArray[np.int64]:
    """Return up to ``most`` sequences that are scored, spread over all of them."""
    return np.arange(0, len(examples), -(-len(examples) // most))


def fixed_masks(settings: MaskedLM, mask_id: int) -> MaskedLMObjective:
    """Return the objective whose masks are the same at every evaluation."""
    return MaskedLMObjective(settings.model_copy(update={"masks": "static"}), mask_id, MASK_SEED)


def make_evaluator(examples: PackedExamples, settings: MaskedLM, mask_id: int) -> Evaluate:
    """Return a function that computes a model's mean loss of masked pieces during its training."""
    chosen = sample(examples, MOST_DURING_TRAINING)

    def evaluate(model: PreTrainedModel) -> float:
        return float(score(model, examples, chosen, settings, mask_id).losses.mean())

    return evaluate


def make_loss_evaluator(examples: PackedExamples, objective: Objective) -> Evaluate:
    """Return a function that computes a model's mean loss of held-out sequences, for losses without masks."""
    chosen = sample(examples, MOST_DURING_TRAINING)

    def evaluate(model: PreTrainedModel) -> float:
        total = 0.0
        for batch in batches_by_length(examples.lengths[chosen], BATCH):
            losses = objective(model, batch_tensors(examples, chosen[batch], model.device))
            total += len(batch) * float(sum(losses.values()))
        return total / len(chosen)

    return evaluate


def score(
    model: PreTrainedModel, examples: PackedExamples, chosen: NDArray[np.int64], settings: MaskedLM, mask_id: int
) -> HeldOutScores:
    """Return the scores of a model on these sequences."""
    objective = fixed_masks(settings, mask_id)
    parts = list(_score_batches(nn.Module.train(model, False), examples, chosen, objective))
    scores = HeldOutScores(*(np.concatenate(values) for values in zip(*parts, strict=True)))
    if not len(scores.losses):
        raise DataError(
            "the held-out texts are too short: none of their pieces is masked.",
            hint="a larger text.held_out, or more text",
        )
    return scores


@torch.no_grad()
def _score_batches(
    model: PreTrainedModel, examples: PackedExamples, chosen: NDArray[np.int64], objective: MaskedLMObjective
) -> Iterator[tuple[NDArray[Any], ...]]:
    for batch in batches_by_length(examples.lengths[chosen], BATCH):
        indices = chosen[batch]
        tensors = batch_tensors(examples, indices, model.device)
        masked, targets = objective.masked(model, tensors)
        at = targets != IGNORED_LABEL
        predicted = predict_at(model, {**tensors, "input_ids": masked}, at)
        documents = examples.documents(indices)
        right: NDArray[np.float64] = np.zeros(0)
        if predicted.pairs is not None and NEXT_SENTENCE in tensors:
            right = _array(predicted.pairs.argmax(dim=-1) == tensors[NEXT_SENTENCE]).astype(np.float64)
        yield (
            _array(word_losses(predicted.words, targets[at])).astype(np.float64),
            _array(targets[at]),
            _array(tensors["input_ids"].roll(1, dims=1)[at]),
            documents[_array(at.nonzero()[:, 0])],
            right,
            documents[: len(right)],
        )


def batch_tensors(examples: PackedExamples, indices: NDArray[np.int64], device: torch.device) -> dict[str, Tensor]:
    """Return the arrays of these sequences on a device."""
    return {name: torch.from_numpy(array).to(device) for name, array in examples.batch(indices).items()}


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.cpu().numpy()
