"""Losses on token-by-token maps (attention, relations), computed in chunks with bounded memory.

Such maps hold (examples, heads, tokens, tokens) numbers: 1.6 GB for 32 texts of 512 tokens with 48 heads, per model,
several times over, and again for the gradient. Their losses are sums over maps with gradients in closed form. So a few
maps are computed, compared, turned into the gradient of the vectors they came from, and freed: only gradients of the
size of those vectors are stored until the backward pass.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from compress.losses.tensor_ops.row_groups import MASKED_LOGIT, RowGroups, Tensors
from compress.losses.tensor_ops.vector_ops import to_float32

VectorPair = tuple[Tensor, Tensor]
"""Row and column vectors of the maps (queries and keys, say), each (examples, heads, tokens, size)."""
Distance = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(student scores, teacher scores, mask) -> (distance of each line, gradient by student scores). It may overwrite both.

Scores are (examples, heads, tokens, tokens); the mask (examples, 1, 1, tokens) is true for real tokens."""

MAX_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}
"""Map elements per chunk: on a CPU what fits its cache, on a GPU enough to keep it busy."""
VECTOR_WIDTH = 16
"""Single-precision numbers in the widest vector registers of today's CPUs."""


def token_map_loss(student: VectorPair, teacher: VectorPair, batch: Tensors, distance: Distance) -> Tensor:
    """Return the distance of maps as a mean over heads and each row's real tokens, then over rows.

    A line of a map holds the scores ``a·b / √size`` of one token with all others; lines and columns of padding do not
    count. The teacher's vectors get no gradient.

    Args:
        student: the student's vectors.
        teacher: the teacher's; the same number of heads, of any size.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
        distance: `kl_distance` or `squared_distance`.
    """
    mask = batch["attention_mask"]
    weights = RowGroups.from_batch(batch).item_weights(mask)[:, None] / student[0].shape[1]
    real = mask[:, None, None].bool()
    loss: Tensor = _TokenMapLoss.apply(*student, *teacher, real, weights, distance)  # type: ignore[no-untyped-call]
    return loss


def attention_scores(queries: Tensor, keys: Tensor) -> Tensor:
    """Return ``a·b / √size`` (examples, heads, tokens, tokens), at least in float32.

    Products of 16-bit vectors are rounded to 16 bits first: in bf16 by up to 0.4 % of a score.
    """
    return to_float32(queries @ keys.transpose(-1, -2)).mul_(queries.shape[-1] ** -0.5)


def softmax(scores: Tensor) -> Tensor:
    """Return the softmax over the last dimension.

    On a CPU, torch processes lines shorter than a vector register one number at a time: a softmax over 14 numbers takes
    ten times as long as one over 16. Texts are often that short, so their lines are padded to the register width first.
    """
    missing = VECTOR_WIDTH - scores.shape[-1]
    if missing <= 0 or scores.device.type != "cpu":
        return scores.softmax(dim=-1)
    return pad(scores, (0, missing), value=-torch.inf).softmax(dim=-1)[..., :-missing].contiguous()


def masked_softmax(scores: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Return the softmax over real tokens, and the logarithm of its denominator (examples, heads, tokens, 1).

    Scores of padding are set to `MASKED_LOGIT` in place. On a CPU a softmax is fast, while a logarithm or exponential
    of the full map is several times as slow; the log-denominator follows from the largest probability alone, which is
    never near zero.
    """
    probabilities = softmax(scores.add_(~real * MASKED_LOGIT))
    return probabilities, scores.amax(dim=-1, keepdim=True) - probabilities.amax(dim=-1, keepdim=True).log()


def kl_distance(student: Tensor, teacher: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``KL(softmax(t) | softmax(s))`` over real tokens; the gradient is the difference of the softmaxes."""
    (q, student_sum), (p, teacher_sum) = masked_softmax(student, real), masked_softmax(teacher, real)
    # log p - log q = (t - log sum e^t) - (s - log sum e^s), averaged with weights p.
    distance = teacher.sub_(student).mul_(p).sum(dim=-1) + (student_sum - teacher_sum)[..., 0]
    return distance, q.sub_(p)


def squared_distance(student: Tensor, teacher: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``(s - t)²`` as a mean over real tokens."""
    difference = student.sub_(teacher)
    slope = difference * (real / real.sum(dim=-1, keepdim=True).clamp(min=1))
    return difference.mul_(slope).sum(dim=-1), slope.mul_(2)


class _TokenMapLoss(torch.autograd.Function):
    """The loss; the forward pass computes the gradient too, and the backward pass only scales it."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        teacher_queries: Tensor,
        teacher_keys: Tensor,
        real: Tensor,
        weights: Tensor,
        distance: Distance,
    ) -> Tensor:
        total = weights.new_zeros((), dtype=to_float32(queries[:0]).dtype)
        needs_gradient = any(ctx.needs_input_grad[:2])
        gradients = [torch.empty_like(tensor) for tensor in (queries, keys) if needs_gradient]
        for chunk in _chunks(queries):
            a, b = queries[chunk], keys[chunk]
            texts, weight = chunk[0], weights[chunk[0]]
            values, slope = distance(
                attention_scores(a, b), attention_scores(teacher_queries[chunk], teacher_keys[chunk]), real[texts]
            )
            total += (values * weight).sum()
            if needs_gradient:
                slope = slope.mul_(weight[..., None] * a.shape[-1] ** -0.5).to(a.dtype)
                gradients[0][chunk] = slope @ b
                gradients[1][chunk] = slope.transpose(-1, -2) @ a
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys = ctx.saved_tensors
        return scale * queries, scale * keys, None, None, None, None, None


def _chunks(vectors: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield slices of examples and heads whose maps hold at most `MAX_ELEMENTS` numbers (or one map)."""
    examples, heads, tokens, _ = vectors.shape
    maps = max(1, MAX_ELEMENTS.get(vectors.device.type, MAX_ELEMENTS["cpu"]) // tokens**2)
    heads_per_chunk = min(heads, maps)
    examples_per_chunk = maps // heads_per_chunk
    for example in range(0, examples, examples_per_chunk):
        for head in range(0, heads, heads_per_chunk):
            yield slice(example, example + examples_per_chunk), slice(head, head + heads_per_chunk)
