"""Retrieval: cross-entropy of a query's own document among all documents of the batch."""

import torch
from torch import Tensor

from compress.losses.tensor_ops.row_groups import MASKED_LOGIT, RowGroups, Tensors

QUERY, POSITIVE, NEGATIVE = 0, 1, 2
"""Values of a batch's `part`: the role of each example."""

SCALE = 20.0
"""Cosines between -1 and 1 are too close for a softmax; this scale is a temperature of 0.05."""


def in_batch_negatives(outputs: Tensors, batch: Tensors, pooling: str) -> Tensor:
    """Return ``-log softmax(20 q·d)[positive]`` of each query q over all documents d of the batch, as a mean over rows.

    Henderson et al., "Efficient Natural Language Response Suggestion for Smart Reply", 2017 (arXiv:1705.00652), for
    in-batch negatives; Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", 2020
    (arXiv:2004.04906), for hard ones. Documents are the positives and negatives of every row. A document whose text
    is a known positive (of this query, or of an equal query elsewhere in the batch) is not a negative. A batch of one
    row without negatives has loss zero: a softmax over one document is one.

    Unlike other losses it depends on which rows share a batch: larger batches are harder and give more signal.

    Args:
        outputs: `sentence_embedding` (examples, width), of length one.
        batch: `part` (examples,): 0 query, 1 positive (one each per row), 2 negatives; `group` and `input_ids`.
        pooling: not used.
    """
    embeddings, part, row = outputs["sentence_embedding"].float(), batch["part"], RowGroups.from_batch(batch).row
    queries, documents = part == QUERY, part != QUERY
    with torch.autocast(embeddings.device.type, enabled=False):  # a product in bf16 is coarse once multiplied by 20
        scores = SCALE * embeddings[queries] @ embeddings[documents].T
    own = (row[queries][:, None] == row[documents]) & (part[documents] == POSITIVE)
    scores = scores.masked_fill(_is_positive_of(batch["input_ids"], part) & ~own, MASKED_LOGIT)
    return -scores.log_softmax(dim=1)[own].mean()


def _is_positive_of(input_ids: Tensor, part: Tensor) -> Tensor:
    """Return whether a document's text is a positive of a query's text, in any row (rows, documents)."""
    text: Tensor = torch.unique(input_ids, dim=0, return_inverse=True)[1]
    queries, positives, documents = text[part == QUERY], text[part == POSITIVE], text[part != QUERY]
    same_query, is_positive = queries[:, None] == queries, positives[:, None] == documents
    return same_query.float() @ is_positive.float() > 0
