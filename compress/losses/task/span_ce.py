"""Extractive question answering: cross-entropy of the start and the end of the answer."""

import torch
import torch.nn.functional as F
from torch import Tensor

from compress.losses.tensor_ops.logit_views import span_views
from compress.losses.tensor_ops.row_groups import Tensors


def span_ce(outputs: Tensors, batch: Tensors, pooling: str) -> Tensor:
    """Return the mean of ``-log softmax(s)[start]`` and ``-log softmax(e)[end]``, as a mean over windows, then rows.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018
    (arXiv:1810.04805), sections 4.2 and 4.3. Only possible answers compete: the context's pieces, and [CLS], which
    means "no answer here". The question and padding do not.

    Args:
        outputs: `start_logits` and `end_logits` (examples, tokens).
        batch: `start` and `end` (examples,) int64, 0 for no answer; `context` (examples, tokens), one for its pieces.
        pooling: not used.
    """
    losses = [
        (F.cross_entropy(view.logits, batch[name], reduction="none") * view.weight).sum()
        for name, view in zip(("start", "end"), span_views(outputs, batch, pooling), strict=True)
    ]
    return torch.stack(losses).mean()
