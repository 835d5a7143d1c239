"""What changed between two models: CKA of layers on the same words, distance of weights, and which heads stayed."""

from collections import Counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compress.errors import UsageError
from compress.measure.result_base import Score
from compress.model_folder.model_info import find_info
from compress.models.encoder_parts import layers_of
from compress.probe.head_patterns import Heads, pattern_of
from compress.probe.probe_result import LayerChanged, ModelChange
from compress.probe.states import ProbedModel, States
from compress.train.distillation.cka_layer_map import LinearCKA

BLOCK = 2048
DRAWS = 20
"""Bootstrap draws of texts for the intervals of CKA."""


def compare_models(
    models: tuple[ProbedModel, ProbedModel],
    states: tuple[States, States],
    words: NDArray[np.int64],
    texts: NDArray[np.int64],
    heads: Heads | str,
    seed: int,
) -> ModelChange:
    """Compare an earlier and a later model on words that both see.

    Args:
        models: the earlier and the later one.
        states: theirs.
        words: numbers in the corpus.
        texts: the text of each word.
        heads: the earlier model's.
        seed: of draws.
    """
    earlier, later = states
    seen = earlier.seen[words] & later.seen[words]
    words, texts = words[seen], texts[seen]
    if len(words) < 2:
        raise UsageError(f"{earlier.name} and {later.name} read no word alike, so they cannot be compared.")
    cka = LinearCKA()
    for start in range(0, len(words), BLOCK):
        block = words[start : start + BLOCK]
        cka.add(_features(later, block), _features(earlier, block))
    matrix = cka.matrix()
    same = _same_depth(earlier, later, matrix, words, texts, seed)
    moved = _weight_distances(*models)
    vocabularies = [model.tokenizer.get_vocab() for model in models]
    return ModelChange(
        earlier=earlier.name,
        later=later.name,
        words=len(words),
        cka=tuple(tuple(round(value, 4) for value in row) for row in matrix.tolist()),
        earlier_layers=earlier.layers,
        layers=tuple(
            LayerChanged(
                layer=name,
                most_like=earlier.layers[int(row.argmax())],
                likeness=float(row.max()),
                same_depth=same[number] if same else None,
                weights=moved[number - 1] if moved and number else None,
            )
            for number, (name, row) in enumerate(zip(later.layers, matrix, strict=True))
        ),
        heads=_kept_heads(heads, *models),
        note=None
        if vocabularies[0] == vocabularies[1]
        else "Their tokenizers differ: words are aligned by characters.",
    )


def _features(states: States, words: NDArray[np.int64]) -> list[Tensor]:
    return [torch.from_numpy(states.of_words(layer)[words]) for layer in range(len(states.layers))]


def _same_depth(
    earlier: States,
    later: States,
    matrix: Tensor,
    words: NDArray[np.int64],
    texts: NDArray[np.int64],
    seed: int,
) -> list[Score] | None:
    """Return CKA of layers with the same number, with 95 % intervals over draws of texts."""
    if len(earlier.layers) != len(later.layers):
        return None
    random = np.random.default_rng(seed)
    members = [np.flatnonzero(texts == text) for text in np.unique(texts).tolist()]
    draws = [
        np.concatenate([members[i] for i in random.integers(len(members), size=len(members))]) for _ in range(DRAWS)
    ]
    scores = []
    for layer in range(len(later.layers)):
        own, other = (torch.from_numpy(each.of_words(layer)[words]) for each in (later, earlier))
        drawn = [_cka(own[draw], other[draw]) for draw in draws]
        # Of the draws only the spread is used: a text that is drawn twice makes two layers seem more alike.
        value, error = float(matrix[layer, layer]), 1.96 * float(np.std(drawn, ddof=1))
        scores.append(Score(value=value, low=max(0.0, value - error), high=min(1.0, value + error)))
    return scores


def _cka(one: Tensor, other: Tensor) -> float:
    one, other = one - one.mean(0), other - other.mean(0)
    norm = (one.T @ one).norm() * (other.T @ other).norm()
    return float((one.T @ other).square().sum() / norm) if norm > 0 else 0.0


def _weight_distances(earlier: ProbedModel, later: ProbedModel) -> tuple[float | None, ...] | None:
    """Return how far the weights of each layer moved, as a share of their size."""
    ours, theirs = layers_of(later.model), layers_of(earlier.model)
    if len(ours) != len(theirs):
        return None
    return tuple(
        _distance(dict(own.named_parameters()), dict(other.named_parameters()))
        for own, other in zip(ours, theirs, strict=True)
    )


def _distance(own: dict[str, torch.nn.Parameter], other: dict[str, torch.nn.Parameter]) -> float | None:
    if own.keys() != other.keys() or any(own[name].shape != other[name].shape for name in own):
        return None
    moved = sum(float((own[name] - other[name]).detach().square().sum()) for name in own)
    size = sum(float(other[name].detach().square().sum()) for name in own)
    return float(np.sqrt(moved / size)) if size else None


def _kept_heads(
    heads: Heads | str, earlier: ProbedModel, later: ProbedModel
) -> tuple[tuple[str, int, int], ...] | None:
    """Return for each pattern how many heads had it, and how many pruning kept; dropped layers keep none.

    None where the earlier model was pruned too: what is known counts from the model before all pruning.
    """
    info, before = find_info(later.folder), find_info(earlier.folder)
    if before and before.pruning:
        return None
    pruning = info.pruning if info else None
    if isinstance(heads, str) or pruning is None or len(pruning.layers) != len(heads.per_layer):
        return None
    if all(count == len(layer.heads) for layer, count in zip(pruning.layers, heads.per_layer, strict=True)):
        return None  # the earlier model is the pruned one already
    had, kept, number = Counter[str](), Counter[str](), 0
    for layer, count in zip(pruning.layers, heads.per_layer, strict=True):
        for head in range(count):
            pattern = pattern_of(heads.shares[number])
            had[pattern] += 1
            kept[pattern] += head in layer.heads
            number += 1
    return tuple((pattern, count, kept[pattern]) for pattern, count in had.most_common())
