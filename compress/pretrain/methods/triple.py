"""DistilBERT's triple loss: a student with a word head learns from a teacher with one, on texts alone."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from compress.batch_arrays import IGNORED_LABEL
from compress.losses import LayerPart
from compress.losses.distillation.soft_label import softmax_distance
from compress.models.encoder_parts import capture_parts, layers_of
from compress.pretrain.methods.bert_pretraining import (
    MASKED_LM,
    MaskedLMObjective,
    Predictions,
    mean_over_rows,
    predict_at,
    word_losses,
)
from compress.train.distillation.teachers import on_device_of, weights_digest
from compress.train.objective import Batch, Losses, Objective

SOFT_LABEL, HIDDEN_COSINE = "soft_label", "hidden_cosine"
WEIGHTS = {SOFT_LABEL: 5.0, MASKED_LM: 2.0, HIDDEN_COSINE: 1.0}
"""Those that DistilBERT was trained with."""
LAST_PARTS: tuple[LayerPart, ...] = ("hidden",)
"""What is captured of the last layer."""


class TripleObjective(Objective):
    """Soft labels and true ones at masked pieces, and the direction of the last layer's vectors at all but padding.

    Sanh et al., "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter", 2019
    (arXiv:1910.01108). Where student and teacher differ in width, their vectors are not compared.
    """

    def __init__(self, teacher: PreTrainedModel, temperature: float, masks: MaskedLMObjective) -> None:
        """``teacher`` has a word head; ``masks`` draws the pieces that both models predict."""
        self.teacher, self.temperature, self.masks = teacher.train(False), temperature, masks

    def identity(self) -> str:
        """Return what the losses depend on."""
        return f"triple {self.temperature} {self.masks.identity()} {weights_digest(self.teacher)}"

    def begin(self, progress: float, update: int = 0) -> None:
        """Draw the masks of this update."""
        self.masks.begin(progress, update)

    def has_independent_rows(self) -> bool:
        """Return True: each row's losses depend on that row alone."""
        return True

    def teachers(self) -> Sequence[PreTrainedModel]:
        """Return the teacher."""
        return [self.teacher]

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Compute the three losses."""
        masked, targets = self.masks.masked(model, batch)
        chosen, real = targets != IGNORED_LABEL, batch["attention_mask"].bool()
        batch = {**batch, "input_ids": masked}
        with torch.no_grad():
            theirs, their_hidden = _predict(on_device_of(self.teacher, masked), batch, chosen)
        ours, our_hidden = _predict(model, batch, chosen)
        soft = softmax_distance(ours.words.float(), theirs.words.float(), self.temperature)
        losses = {SOFT_LABEL: soft, MASKED_LM: word_losses(ours.words, targets[chosen])}
        weighted = {name: WEIGHTS[name] * mean_over_rows(values, chosen) for name, values in losses.items()}
        if our_hidden.shape != their_hidden.shape:
            return weighted
        apart = 1 - F.cosine_similarity(our_hidden[real].float(), their_hidden[real].float(), dim=-1)
        return {**weighted, HIDDEN_COSINE: WEIGHTS[HIDDEN_COSINE] * mean_over_rows(apart, real)}


def _predict(model: PreTrainedModel, batch: Batch, chosen: Tensor) -> tuple[Predictions, Tensor]:
    """Return the predictions at the chosen pieces, and the vectors of the last layer (rows, pieces, width)."""
    last = len(layers_of(model)) - 1
    with capture_parts(model, {last: LAST_PARTS}) as captured:
        predicted = predict_at(model, batch, chosen)
    return predicted, captured[last]["hidden"]
