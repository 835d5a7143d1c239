"""Token classification: cross-entropy of each word's tag at its first piece."""

import torch.nn.functional as F
from torch import Tensor

from compress.batch_arrays import IGNORED_LABEL
from compress.losses.tensor_ops.row_groups import RowGroups, Tensors


def token_ce(outputs: Tensors, batch: Tensors, pooling: str) -> Tensor:
    """Return ``-log softmax(z)[y]`` at each word's first piece, as a mean over a row's words, then over rows.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018
    (arXiv:1810.04805), section 5.3, where the first piece predicts the word's tag. There all words of a batch have
    equal weight; here rows have, so that a batch can be split anywhere. A row without a tagged word has loss zero.

    Args:
        outputs: `logits` (examples, tokens, tags).
        batch: `labels` (examples, tokens) int64, -100 for special pieces, padding, and every piece of
            a word but its first.
        pooling: not used.
    """
    labels = batch["labels"]
    weight = RowGroups.from_batch(batch).item_weights(labels != IGNORED_LABEL)
    logits = outputs["logits"].float().flatten(0, 1)
    losses = F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED_LABEL, reduction="none")
    return (losses * weight.flatten()).sum()
