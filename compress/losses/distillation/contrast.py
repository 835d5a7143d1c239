"""Contrast: each text's student vector identifies its own teacher vector among those of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from compress.losses.tensor_ops.row_groups import Tensors, mean_over_examples
from compress.losses.tensor_ops.vector_ops import text_vectors, unit

if TYPE_CHECKING:
    from compress.recipe.loss_schema import Contrast


def contrast(student: Tensors, teacher: Tensors, batch: Tensors, settings: Contrast) -> Tensor:
    """Return ``-log softmax_j(cos(s_i, t_j) / temperature)[i]`` of each text i among all texts j, as a mean over rows.

    van den Oord et al., "Representation Learning with Contrastive Predictive Coding", 2018 (arXiv:1807.03748),
    between student and teacher as in Tian et al., "Contrastive Representation Distillation", 2020 (arXiv:1910.10699),
    who use a memory bank and binary decisions; here it is a softmax over the batch.

    Unlike most losses it depends on which rows share a batch: with n texts it starts near ``log n``, larger batches are
    harder and give more signal, and a batch of one has loss zero. Equal texts share the probability.

    Args:
        student: `hidden` (examples, tokens, width), already projected to the teacher's width where they differ.
        teacher: `hidden` of the same shape; it gets no gradient.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
        settings: `temperature`: a smaller one concentrates on the most similar texts, and the gradient grows with its
            inverse; `pool`: the vector of a text, that of its first token or the mean of all.
    """
    ours, theirs = student["hidden"], teacher["hidden"].detach()
    ours, theirs = (unit(text_vectors(hidden, batch, settings.pool)) for hidden in (ours, theirs))
    with torch.autocast(ours.device.type, enabled=False):  # a bf16 product is too coarse once divided by 0.05
        scores = ours @ theirs.T / settings.temperature
    return mean_over_examples(-scores.log_softmax(dim=1).diagonal(), batch)
