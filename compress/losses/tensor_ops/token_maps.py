"""Maps of what each token has to do with each other token, compared a few at a time.

Attention and relations are (examples, heads, tokens, tokens) numbers: of 32 texts with 512 tokens and 48 heads they
would fill 1.6 GB, for each model, several times over, and again for the gradient. But their losses are sums over
maps, whose gradients are known in closed form. So a few maps are made, compared, turned into the gradient of the
vectors they came from, and dropped: what stays until the backward pass is as large as those vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from compress.losses.tensor_ops.row_groups import MASKED_LOGIT, RowGroups
from compress.losses.tensor_ops.softmax import softmax
from compress.losses.tensor_ops.vector_ops import to_float32

Sides = tuple[Tensor, Tensor]
"""Vectors (examples, heads, tokens, size) of the tokens that look, and of those that are looked at."""
Distance = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(our scores, theirs, real tokens) -> (distance of each line, its slope along our scores). It may overwrite both.

Scores are (examples, heads, tokens, tokens); real tokens (examples, 1, 1, tokens) are true."""

MAX_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}
"""How many numbers of maps are held at once: on a CPU what stays in its cache, elsewhere what keeps a card busy."""


def token_map_loss(ours: Sides, theirs: Sides, batch: Mapping[str, Tensor], distance: Distance) -> Tensor:
    """The distance of maps as a mean over heads and each row's real tokens, then over rows.

    A line of a map are the scores ``a·b / √size`` of one token with all others. Padding is neither looked from nor
    looked at. The teacher's vectors get no gradient.

    Args:
        ours: the student's vectors.
        theirs: the teacher's; as many heads, of any size.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
        distance: `kl_distance` or `squared_distance`.
    """
    mask = batch["attention_mask"]
    weights = RowGroups.of(batch).weights(mask)[:, None] / ours[0].shape[1]
    real = mask[:, None, None].bool()
    loss: Tensor = _Compared.apply(*ours, *theirs, real, weights, distance)  # type: ignore[no-untyped-call]
    return loss


def attention_scores(looking: Tensor, looked_at: Tensor) -> Tensor:
    """``a·b / √size`` (examples, heads, tokens, tokens), in single precision at least.

    Products of halves are rounded to halves first: in bf16 that is up to 0.4 % of a score.
    """
    return to_float32(looking @ looked_at.transpose(-1, -2)).mul_(looking.shape[-1] ** -0.5)


def masked_softmax(scores: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """The softmax over real tokens, and the logarithm of what it divides by (examples, heads, tokens, 1).

    It puts the scores of padding far below all others. The softmax is quick on a CPU, where a logarithm of all of it,
    or an exponential, is several times as slow; both can be had from its largest number, which is never near zero.
    """
    share = softmax(scores.add_(~real * MASKED_LOGIT))
    return share, scores.amax(dim=-1, keepdim=True) - share.amax(dim=-1, keepdim=True).log()


def kl_distance(ours: Tensor, theirs: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """``KL(softmax(t) | softmax(s))`` over real tokens; its slope is the difference of the softmaxes."""
    (given, our_sum), (wanted, their_sum) = masked_softmax(ours, real), masked_softmax(theirs, real)
    # log p - log q = (t - log sum e^t) - (s - log sum e^s), as a mean that p weighs.
    apart = theirs.sub_(ours).mul_(wanted).sum(dim=-1) + (our_sum - their_sum)[..., 0]
    return apart, given.sub_(wanted)


def squared_distance(ours: Tensor, theirs: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """``(s - t)²`` as a mean over real tokens."""
    apart = ours.sub_(theirs)
    slope = apart * (real / real.sum(dim=-1, keepdim=True).clamp(min=1))
    return apart.mul_(slope).sum(dim=-1), slope.mul_(2)


class _Compared(torch.autograd.Function):
    """The loss with its gradient, which is made on the way; the backward pass only scales it."""

    @staticmethod
    def forward(
        ctx: Any,
        looking: Tensor,
        looked_at: Tensor,
        their_looking: Tensor,
        their_looked_at: Tensor,
        real: Tensor,
        weights: Tensor,
        distance: Distance,
    ) -> Tensor:
        total = weights.new_zeros((), dtype=to_float32(looking[:0]).dtype)
        wanted = any(ctx.needs_input_grad[:2])
        slopes = [torch.empty_like(each) for each in (looking, looked_at) if wanted]
        for part in _parts(looking):
            a, b = looking[part], looked_at[part]
            texts, weight = part[0], weights[part[0]]
            values, slope = distance(
                attention_scores(a, b), attention_scores(their_looking[part], their_looked_at[part]), real[texts]
            )
            total += (values * weight).sum()
            if wanted:
                slope = slope.mul_(weight[..., None] * a.shape[-1] ** -0.5).to(a.dtype)
                slopes[0][part] = slope @ b
                slopes[1][part] = slope.transpose(-1, -2) @ a
        ctx.save_for_backward(*slopes)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        looking, looked_at = ctx.saved_tensors
        return scale * looking, scale * looked_at, None, None, None, None, None


def _parts(vectors: Tensor) -> Iterator[tuple[slice, slice]]:
    """Examples, and heads of them, whose maps together are as large as may be held at once."""
    examples, heads, tokens, _ = vectors.shape
    maps = max(1, MAX_ELEMENTS.get(vectors.device.type, MAX_ELEMENTS["cpu"]) // tokens**2)
    some_heads = min(heads, maps)
    some_examples = maps // some_heads
    for example in range(0, examples, some_examples):
        for head in range(0, heads, some_heads):
            yield slice(example, example + some_examples), slice(head, head + some_heads)
