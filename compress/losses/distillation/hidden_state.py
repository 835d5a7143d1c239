"""Hidden states: the outputs of the student's layers match those of the mapped teacher layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from compress.losses.tensor_ops.row_groups import Tensors, mean_over_examples, mean_over_tokens
from compress.losses.tensor_ops.vector_ops import squared_norm, unit

if TYPE_CHECKING:
    from compress.recipe.loss_schema import HiddenState


def hidden_state(student: Tensors, teacher: Tensors, batch: Tensors, settings: HiddenState) -> Tensor:
    """Return the distance between the outputs of two layers, over real tokens, as a mean over rows.

    - `mse`: ``|s - t|² / width`` of each token's vector. It grows with the square of the vectors' lengths, so a
      suitable weight differs between teachers. Jiao et al., "TinyBERT: Distilling BERT for Natural Language
      Understanding", 2020 (arXiv:1909.10351).
    - `cosine`: ``1 - cos(s, t)`` of each token's vector, from 0 to 2; vector lengths are ignored. Sanh et al.,
      "DistilBERT, a distilled version of BERT", 2019 (arXiv:1910.01108).
    - `cls`: ``|s/|s| - t/|t||²`` of the first token alone, from 0 to 4; other tokens are ignored. Sun et al., "Patient
      Knowledge Distillation for BERT Model Compression", 2019 (arXiv:1908.09355).

    Args:
        student: `hidden` (examples, tokens, width), already projected to the teacher's width where they differ.
        teacher: `hidden` of the same shape; it gets no gradient.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
        settings: its `form`.
    """
    ours, theirs = student["hidden"], teacher["hidden"].detach()
    if settings.form == "mse":
        return mean_over_tokens(squared_norm(ours - theirs) / ours.shape[-1], batch)
    if settings.form == "cosine":
        # Half the squared distance of unit vectors is 1 - cos, and exactly zero for equal vectors, in bf16 too.
        return mean_over_tokens(squared_norm(unit(ours) - unit(theirs)) / 2, batch)
    return mean_over_examples(squared_norm(unit(ours[:, 0]) - unit(theirs[:, 0])), batch)
