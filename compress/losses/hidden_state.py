"""Hidden states: the student's layers say what the teacher's mapped layers say.

Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020 (arXiv:1909.10351), equation 8.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from compress.losses.masking import mean_over_tokens
from compress.recipe.losses import HiddenState


def hidden_state(
    student: Mapping[str, Tensor], teacher: Mapping[str, Tensor], batch: Mapping[str, Tensor], settings: HiddenState
) -> Tensor:
    """Mean squared difference of one layer's outputs over real tokens and dimensions.

    Args:
        student: `hidden` (examples, tokens, width), already projected to the teacher's width where they differ.
        teacher: `hidden` of the same shape, without gradient.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
    """
    ours, theirs = student["hidden"], teacher["hidden"]
    if ours.shape != theirs.shape:
        raise ValueError(f"hidden states {tuple(ours.shape)} and {tuple(theirs.shape)} differ: project the student's")
    return mean_over_tokens((ours.float() - theirs.float()).square().mean(dim=-1), batch)
