"""What each head attends to, how alike heads are, and the geometry of each layer's vectors.

Attention as in Clark et al., "What Does BERT Look At?", 2019 (arXiv:1906.04341), including the distance of heads: the
Jensen-Shannon divergence of their attention, on the same tokens. Anisotropy as in Ethayarajh, 2019 (arXiv:1909.00512);
intrinsic dimension by the ratio of the distances to the two nearest neighbours (Facco et al., 2017).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compress.console import Console
from compress.models.encoder_parts import base_of
from compress.probe.states import ProbedModel, States, TokenBatch, token_batches

PATTERNS = ("first", "separator", "previous word", "next word", "itself", "same word")
"""Where attention goes, in shares of it: the first token, separators, pieces of the word before or after, the token
itself, and other pieces of its word or the same piece elsewhere. What is left goes to other words."""
LEAST_SHARE = 0.4
"""Share of attention from which a head is said to have a pattern."""
BROAD = "broad"
MAPPED_TOKENS = 1_024
"""Tokens of a batch at most: the maps of all heads of all layers are in memory."""
ALIKE_TOKENS = 1_000
"""Tokens on which heads are compared."""
NEIGHBOURS = 2_000
"""Vectors among which nearest neighbours are searched."""


@dataclass(frozen=True)
class Heads:
    """The heads of one model, layer by layer."""

    per_layer: tuple[int, ...]
    shares: NDArray[np.float64]
    """(heads, patterns)"""
    distance: NDArray[np.float64]
    """Mean distance in tokens."""
    entropy: NDArray[np.float64]
    """Mean entropy in bits."""
    divergence: NDArray[np.float64]
    """(heads, heads): Jensen-Shannon, in bits."""
    tokens: int


def describe_heads(
    probed: ProbedModel, texts: Sequence[tuple[str, str | None]], max_length: int, console: Console
) -> Heads | str:
    """Return the heads' patterns on these texts, or why there are none; the model's attention is slow afterwards."""
    try:
        probed.model.set_attn_implementation("eager")  # the fast ones return no maps
    except (ValueError, NotImplementedError) as error:
        return f"its attention gives no maps ({error})"
    sums, tokens, kept = None, 0, list[Tensor]()
    per_layer: tuple[int, ...] = ()
    with console.progress(len(texts), f"{probed.name}: heads", "texts") as progress:
        for batch in token_batches(probed, texts, max_length, MAPPED_TOKENS):
            with torch.inference_mode():
                given = base_of(probed.model)(**batch.inputs, output_attentions=True).attentions
            maps = [each for each in given or () if each is not None]
            if not maps:
                return "its attention gives no maps"
            per_layer = tuple(each.shape[1] for each in maps)
            attention = torch.cat([each.float() for each in maps], 1)  # (texts, heads, queries, keys)
            asked = _asked(batch)
            found = _sums(attention, batch, asked)
            sums, tokens = found if sums is None else sums + found, tokens + int(asked.sum())
            if sum(each.shape[0] for each in kept) < ALIKE_TOKENS:
                rows = attention.transpose(1, 2)[asked]  # (tokens, heads, keys)
                kept.append(rows[:: max(1, len(rows) // 100)])
            progress.advance(len(batch.texts))
    if sums is None or not tokens:
        return "no text has a token besides special ones"
    means = (sums / tokens).numpy()
    return Heads(
        per_layer=per_layer,
        shares=means[:, : len(PATTERNS)],
        distance=means[:, -2],
        entropy=means[:, -1],
        divergence=_divergence(kept),
        tokens=tokens,
    )


def _asked(batch: TokenBatch) -> Tensor:
    """Return (texts, tokens): the queries, all tokens that are pieces of words."""
    return torch.from_numpy(batch.word_ids >= 0) & batch.mask.bool()


def _sums(attention: Tensor, batch: TokenBatch, asked: Tensor) -> Tensor:
    """Return the sums over queries, (heads, patterns and distance and entropy)."""
    words, ids = torch.from_numpy(batch.word_ids), batch.inputs["input_ids"]
    length = ids.shape[1]
    real, positions = batch.mask.bool(), torch.arange(length)
    is_word = words >= 0
    separator = real & ~is_word & (positions > 0)
    step = words.unsqueeze(1) - words.unsqueeze(2)  # key's word minus query's
    key_is_word = is_word.unsqueeze(1)
    itself = torch.eye(length, dtype=torch.bool).expand_as(step)
    same = ((step == 0) | (ids.unsqueeze(1) == ids.unsqueeze(2))) & key_is_word & ~itself
    first = torch.zeros_like(real)
    first[:, 0] = ~is_word[:, 0]
    masks = [
        first.unsqueeze(1).expand_as(step),
        separator.unsqueeze(1).expand_as(step),
        (step == -1) & key_is_word & ~same,
        (step == 1) & key_is_word & ~same,
        itself,
        same,
    ]
    away = (positions.unsqueeze(0) - positions.unsqueeze(1)).abs().float()
    weights = [*(mask.float() for mask in masks), away.expand(len(ids), -1, -1)]
    queries = asked.float()
    parts = [torch.einsum("bhqk,bqk,bq->h", attention, weight, queries) for weight in weights]
    entropy = -(attention * attention.clamp(min=1e-12).log2()).sum(-1)
    parts.append(torch.einsum("bhq,bq->h", entropy, queries))
    return torch.stack(parts, 1).double()


def _divergence(kept: Sequence[Tensor]) -> NDArray[np.float64]:
    """Return the mean Jensen-Shannon divergence of each two heads, in bits."""
    heads = kept[0].shape[1]
    total, tokens = torch.zeros(heads, heads, dtype=torch.float64), 0
    for rows in kept:
        own = _entropy(rows)
        for head in range(heads):
            middle = (rows[:, head : head + 1] + rows) / 2
            total[head] += (_entropy(middle) - (own[:, head : head + 1] + own) / 2).sum(0).double()
        tokens += len(rows)
    return np.asarray((total / tokens).clamp(min=0).numpy())


def _entropy(rows: Tensor) -> Tensor:
    return -(rows * rows.clamp(min=1e-12).log2()).sum(-1)


def pattern_of(shares: NDArray[np.float64]) -> str:
    """Return the pattern that a head spends most of its attention on; `broad` where none has `LEAST_SHARE`."""
    best = int(shares.argmax())
    return PATTERNS[best] if shares[best] >= LEAST_SHARE else BROAD


@dataclass(frozen=True)
class Geometry:
    """How the vectors of words lie in one layer."""

    anisotropy: float
    """Mean cosine of two words drawn at random: 0 where directions are even, 1 where all vectors point one way."""
    dimension: float | None
    """Intrinsic dimension; None where too few vectors differ."""


def geometry(states: States, words: NDArray[np.int64], seed: int) -> list[Geometry]:
    """Return the geometry of each layer on these words."""
    chosen = np.random.default_rng(seed).permutation(words)[:NEIGHBOURS]
    layers = (states.of_words(layer)[chosen] for layer in range(len(states.layers)))
    return [_geometry(torch.from_numpy(vectors)) for vectors in layers]


def _geometry(vectors: Tensor) -> Geometry:
    count = len(vectors)
    directions = torch.nn.functional.normalize(vectors, dim=1).sum(0)
    cosine = (float(directions.square().sum()) - count) / (count * (count - 1))
    vectors = torch.unique(vectors, dim=0)
    if len(vectors) < 10:
        return Geometry(cosine, None)
    distances = torch.cdist(vectors, vectors).fill_diagonal_(torch.inf)
    nearest = distances.topk(2, largest=False).values
    ratios = (nearest[:, 1] / nearest[:, 0].clamp(min=1e-12)).log()
    # The maximum likelihood estimate without the largest tenth, where the assumption of even density fails.
    kept = ratios.sort().values[: int(0.9 * len(ratios))]
    censored = float(kept.sum() + (len(ratios) - len(kept)) * kept[-1])
    return Geometry(cosine, len(kept) / censored if censored > 0 else None)
