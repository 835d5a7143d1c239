"""Margin: score differences between documents match those of a cross-encoder, which reads both texts at once."""

from torch import Tensor

from compress.losses.task.in_batch_negatives import NEGATIVE, POSITIVE, QUERY, SCALE
from compress.losses.tensor_ops.row_groups import RowGroups, Tensors


def margin(outputs: Tensors, batch: Tensors, pooling: str) -> Tensor:
    """Return ``(20 (q·p - q·n) - (s(q, p) - s(q, n)))²`` as a mean over a row's negatives n, then over rows.

    Hofstätter et al., "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge Distillation", 2020
    (arXiv:2010.02666). The cross-encoder's scores s are used unchanged: logits, whose differences are log odds. The
    student's cosines are multiplied by 20, as in `in_batch_negatives`, where they are log odds too; unscaled, a margin
    of cosines is at most 2 and could not match. A row without negatives has loss zero.

    Args:
        outputs: `sentence_embedding` (examples, width), of length one.
        batch: `scores` (examples,) float32 of each document with its row's query; `part` (examples,): 0 query,
            1 positive (one each per row), 2 negatives; `group`.
        pooling: not used.
    """
    embeddings, part, groups = outputs["sentence_embedding"].float(), batch["part"], RowGroups.from_batch(batch)
    queries = embeddings[part == QUERY][groups.row]
    ours = _margins(SCALE * (queries * embeddings).sum(dim=-1), part, groups)
    theirs = _margins(batch["scores"].float(), part, groups)
    weight = groups.item_weights((part == NEGATIVE)[:, None])[:, 0]
    return ((ours - theirs).square() * weight).sum()


def _margins(scores: Tensor, part: Tensor, groups: RowGroups) -> Tensor:
    """Return how far each example's score is below that of its row's positive."""
    return scores[part == POSITIVE][groups.row] - scores
