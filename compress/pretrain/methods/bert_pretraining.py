"""Masked language modelling, and next sentence prediction beside it: the losses that BERT was pretrained with."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.batch_arrays import IGNORED_LABEL, INDEX
from compress.pretrain.methods.masking import mask_pieces
from compress.pretrain.pretrain_schema import MaskedLM
from compress.pretrain.text.sentence_packing import MASKABLE, NEXT_SENTENCE, WORD_START
from compress.train.objective import Batch, Losses, Objective, forward

MASKED_LM = "masked_lm"
PAIR_LOGITS = "seq_relationship_logits"
"""The output of transformers' BertForPreTraining for pairs (rows, 2)."""


class MaskedLMObjective(Objective):
    """The mean over rows of the mean loss of their masked pieces, and the loss of pairs where the batch has them."""

    def __init__(self, settings: MaskedLM, mask_id: int, seed: int, first_step: int = 0) -> None:
        """``first_step`` are the steps of an earlier part of the training, whose masks are not drawn again."""
        self.settings, self.mask_id = settings, mask_id
        self.seed, self.first_step = seed, first_step
        self.step = first_step

    def identity(self) -> str:
        """Return what the losses depend on."""
        return f"masked_lm {self.settings.model_dump_json()} {self.mask_id} {self.seed} {self.first_step}"

    def begin(self, progress: float, update: int = 0) -> None:
        """Draw the masks of this update."""
        self.step = self.first_step + update

    def has_independent_rows(self) -> bool:
        """Return True: a row's masks depend on its number, and its losses on nothing else."""
        return True

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Compute the losses."""
        masked, targets = self.masked(model, batch)
        chosen = targets != IGNORED_LABEL
        predicted = predict_at(model, {**batch, "input_ids": masked}, chosen)
        losses = {MASKED_LM: mean_over_rows(word_losses(predicted.words, targets[chosen]), chosen)}
        if predicted.pairs is not None and NEXT_SENTENCE in batch:
            losses[NEXT_SENTENCE] = F.cross_entropy(predicted.pairs.float(), batch[NEXT_SENTENCE])
        return losses

    def masked(self, model: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the masked ids of a batch, and the true ids of the masked pieces."""
        return mask_pieces(
            batch["input_ids"],
            batch[MASKABLE],
            batch[WORD_START],
            batch[INDEX],
            self.seed,
            self.step,
            self.settings,
            int(model.config.vocab_size),
            self.mask_id,
        )


def word_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each prediction (pieces,), in fp32."""
    return F.cross_entropy(logits.float(), targets, reduction="none")


def mean_over_rows(losses: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean over rows of the mean over their chosen pieces; a row without any counts as zero.

    So each row counts alike, and the rows of a batch can be split among threads and processes.
    """
    rows = chosen.nonzero()[:, 0]
    counts = chosen.sum(dim=1).clamp(min=1)
    return (losses / counts[rows]).sum() / len(chosen)


class Predictions(NamedTuple):
    """What a model predicts."""

    words: Tensor
    """The logits of words at the chosen pieces alone (pieces, vocabulary)."""
    pairs: Tensor | None
    """The logits of pairs (rows, 2), from models with a head for them."""


def predict_at(model: PreTrainedModel, batch: Batch, chosen: Tensor) -> Predictions:
    """Return a model's predictions, those of words at the chosen pieces alone.

    The product with the vocabulary is the largest one of a small model, and five of six pieces are not masked.
    """
    with _narrowed(model, chosen):
        outputs = forward(model, batch)
    words = outputs["prediction_logits"] if "prediction_logits" in outputs else outputs["logits"]
    if words.ndim > 2:  # a head whose last product is not that of a linear layer
        words = words[chosen]
    return Predictions(words, outputs.get(PAIR_LOGITS))


@contextmanager
def _narrowed(model: PreTrainedModel, chosen: Tensor) -> Iterator[None]:
    """Compute the last layer of the word head at the chosen pieces alone within the block."""
    layer = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if not isinstance(layer, nn.Linear):
        yield
        return

    def product(hidden: Tensor) -> Tensor:
        # Weights that are shared with the embeddings are fp32 even where the layers run in bf16.
        weight = layer.weight.to(hidden.dtype)
        bias: Tensor | None = layer.bias
        return F.linear(hidden[chosen], weight, None if bias is None else bias.to(hidden.dtype))

    layer.forward = product  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del layer.forward
