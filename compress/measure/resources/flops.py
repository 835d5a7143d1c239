"""Operations of one forward pass, from the shape alone: what no kernel could avoid.

Counted are the matrix products of the encoder, two operations (a multiplication and an addition) for each pair of
numbers: query, key, value and output of every layer with its own heads, the two products of attention (over all pairs
of pieces, also where a model masks most of them, because the common kernels compute them all), the FFN (three products
where it is gated), and the widening of narrow word vectors. Not counted: looking up embeddings (no arithmetic);
softmax, activations and normalisation (no matrix products, about one percent); pooler and classifier, which see one
piece of each row (about 1 / (12 x layers x length) of the total).
"""

from __future__ import annotations

from compress.families import FAMILIES
from compress.model_info import ShapeInfo


def flops(shape: ShapeInfo, length: int, batch: int = 1) -> int | None:
    """Return the operations of one forward pass over ``batch`` rows of ``length`` pieces each.

    None for families with a different layer structure, and for folders without a head size.
    """
    if shape.head_size is None or shape.family not in FAMILIES or not FAMILIES[shape.family].resizable:
        return None
    narrow, products = shape.embedding_size, 3 if FAMILIES[shape.family].gated_ffn else 2
    piece = 2 * narrow * shape.hidden if narrow is not None else 0
    for heads, ffn in zip(shape.heads, shape.ffn, strict=True):
        width = heads * shape.head_size
        projections, attention = 4 * 2 * shape.hidden * width, 2 * 2 * length * width
        piece += projections + attention + products * 2 * shape.hidden * ffn
    return batch * length * piece


def flops_per_token(shape: ShapeInfo) -> tuple[int, int] | None:
    """Return the operations a piece, and a pair of pieces of one row.

    ``flops`` is the first times the length and the second times its square.
    """
    once, twice = flops(shape, 1), flops(shape, 2)
    if once is None or twice is None:
        return None
    pair = (twice - 2 * once) // 2
    return once - pair, pair
