"""Embedding: the output of the student's embeddings matches that of the teacher's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from compress.losses.tensor_ops.row_groups import Tensors, mean_over_tokens
from compress.losses.tensor_ops.vector_ops import squared_norm

if TYPE_CHECKING:
    from compress.recipe.loss_schema import Embedding


def embedding(student: Tensors, teacher: Tensors, batch: Tensors, settings: Embedding) -> Tensor:
    """Return ``|s - t|² / width`` of each real token's embedding (word, position and type), as a mean over rows.

    Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020 (arXiv:1909.10351).
    For a student that starts with its teacher's embeddings, in the same width, it is zero.

    Args:
        student: `hidden` (examples, tokens, width): the output of the embeddings, projected to the teacher's width.
        teacher: `hidden` of the same shape; it gets no gradient.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
        settings: nothing but the weight.
    """
    ours, theirs = student["hidden"], teacher["hidden"].detach()
    return mean_over_tokens(squared_norm(ours - theirs) / ours.shape[-1], batch)
