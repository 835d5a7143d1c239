"""Similarity of two texts: squared error of the cosine of their embeddings."""

import torch.nn.functional as F
from torch import Tensor

from compress.losses.tensor_ops.row_groups import RowGroups, Tensors


def cosine_mse(outputs: Tensors, batch: Tensors, pooling: str) -> Tensor:
    """Return ``(u·v - y)²`` of a row's two embeddings and its similarity y, as a mean over rows.

    Reimers and Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", 2019 (arXiv:1908.10084),
    the regression objective. Embeddings have length one, so their product is the cosine.

    Args:
        outputs: `sentence_embedding` (examples, width), two examples per row.
        batch: `labels` (examples,) float32 from 0 to 1, the same for both; `group` (examples,).
        pooling: not used.
    """
    groups = RowGroups.from_batch(batch)
    first, second = groups.pad(outputs["sentence_embedding"].float()).unbind(dim=1)
    return F.mse_loss((first * second).sum(dim=-1), groups.first(batch["labels"]))
