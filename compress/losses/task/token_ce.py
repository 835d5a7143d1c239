"""A tag for each word: cross-entropy at the words' first pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from compress.losses.tensor_ops.row_groups import RowGroups

if TYPE_CHECKING:
    from compress.model_info import TaskInfo

UNTAGGED = -100
"""The label of special pieces, of padding, and of all pieces of a word but its first."""


def token_ce(outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor], task: TaskInfo) -> Tensor:
    """``-log softmax(z)[y]`` at each word's first piece, as a mean over a row's words, then over rows.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018
    (arXiv:1810.04805), section 5.3, where the first piece answers for the word. There all words of a batch weigh the
    same; here rows do, so that a batch may be split anywhere. A row without a tagged word adds nothing.

    Args:
        outputs: `logits` (examples, tokens, tags).
        batch: `labels` (examples, tokens) int64, -100 where there is no tag.
        task: not looked at.
    """
    labels = batch["labels"]
    weight = RowGroups.of(batch).weights(labels != UNTAGGED)
    logits = outputs["logits"].float().flatten(0, 1)
    wrong = F.cross_entropy(logits, labels.flatten(), ignore_index=UNTAGGED, reduction="none")
    return (wrong * weight.flatten()).sum()
