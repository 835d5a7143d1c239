"""The shares of heads and neurons to remove: the recipe's settings applied to a shape, without torch."""

from collections.abc import Sequence
from math import floor

from compress.errors import ModelError, UsageError
from compress.model_folder.model_info import ShapeInfo
from compress.recipe.prune_schema import Prune

MIN_ROWS = 8
"""Fewer rows say too little about which heads and neurons matter."""


def check_sample(rows: int) -> None:
    """Refuse a train split that is too small to compute importance on."""
    if rows < MIN_ROWS:
        raise UsageError(
            f"prune: importance needs at least {MIN_ROWS} rows of train to be computed on, and there are {rows}."
        )


def resolve_ratios(shape: ShapeInfo, settings: Prune, *, is_later: bool = False) -> tuple[float, float]:
    """Return the shares of heads and of FFN neurons to remove; raise `ModelError` if a layer would lose all of them.

    Cuts round to whole units and blocks. One that ``is_later`` than the first may therefore be asked for slightly more
    than can be removed of what the one before it left: it removes what can be.
    """
    max_heads = max_removable(shape.heads, even=settings.even)
    max_ffn = max_removable(shape.ffn, settings.round_to, settings.even)
    heads, ffn = settings.heads, settings.ffn
    if settings.remaining is not None:
        heads = ffn = _ratio_for_goal(shape, settings.remaining)
        if settings.even:
            ffn = min(max(0.0, ffn + _for_whole_heads(shape, heads)), max(ffn, max_ffn))
    if is_later:
        return min(heads, max_heads), min(ffn, max_ffn)
    if settings.remaining is not None:
        _check_goal(shape, settings.remaining, heads, min(max_heads, max_ffn))
    else:
        _check("heads", heads, max_heads, "one head")
        _check("ffn", ffn, max_ffn, f"{settings.round_to} neurons (`round_to`)")
    return heads, ffn


def equivalent_ratios(shape: ShapeInfo, settings: Prune) -> list[tuple[float, float]]:
    """Return all shares of heads and of FFN neurons whose removal leaves the parameters that the settings ask for."""
    heads, ffn = sum(shape.heads), sum(shape.ffn)
    head, neuron = _unit_parameters(shape)
    removed = (1.0 - (settings.remaining or 1.0)) * layer_parameters(shape)
    max_heads = max_removable(shape.heads, even=settings.even)
    max_ffn = max_removable(shape.ffn, settings.round_to, settings.even)
    counts = dict[int, float]()
    for count in range(heads):  # the smallest share that removes so many
        counts.setdefault(_heads_removed(shape.heads, count / heads, settings.even), count / heads)
    pairs = ((share, (removed - count * head) / (neuron * ffn)) for count, share in counts.items())
    return [(share, other) for share, other in pairs if share <= max_heads and 0 <= other <= max_ffn]


def _heads_removed(heads: Sequence[int], share: float, even: bool) -> int:
    """Return how many heads a share removes: whole ones of every layer where it is `even`, as `select_units` does."""
    if not even:
        return round(share * sum(heads))
    return sum(count - max(1, floor((1.0 - share) * count + 0.5)) for count in heads)


def max_removable(counts: Sequence[int], block: int = 1, even: bool = False) -> float:
    """Return the largest share of units that can be removed while every layer keeps a block."""
    if even:
        return min(1.0 - min(block, count) / count for count in counts)
    return 1.0 - sum(min(block, count) for count in counts) / sum(counts)


def layer_parameters(shape: ShapeInfo) -> int:
    """Return the number of parameters of the encoder's layers, without embeddings and head."""
    rest = 6 * shape.hidden  # of each layer: the biases of its two outputs, and two normalizations
    return _removable_parameters(shape) + len(shape.heads) * rest


def _removable_parameters(shape: ShapeInfo) -> int:
    """Return the number of parameters that belong to a head or neuron: all but output biases and normalization."""
    head, neuron = _unit_parameters(shape)
    return sum(shape.heads) * head + sum(shape.ffn) * neuron


def _unit_parameters(shape: ShapeInfo) -> tuple[int, int]:
    """Return the number of parameters of a head and of a neuron."""
    size = shape.head_size or shape.hidden // max(shape.heads)
    return size * (4 * shape.hidden + 3), 2 * shape.hidden + 1


def _check(key: str, ratio: float, maximum: float, minimum_kept: str) -> None:
    if ratio > maximum:
        raise ModelError(
            f"{key}: {ratio:g} cannot be removed: every layer keeps at least {minimum_kept}, so the maximum is"
            f" {maximum:.3g}."
        )


def _ratio_for_goal(shape: ShapeInfo, remaining: float) -> float:
    """Return the share of heads and neurons to remove so that ``remaining`` of the layers' parameters are left."""
    return (1.0 - remaining) * layer_parameters(shape) / _removable_parameters(shape)


def _for_whole_heads(shape: ShapeInfo, share: float) -> float:
    """Return the share of neurons as large as what whole heads of every layer fall short of this share of them."""
    head, neuron = _unit_parameters(shape)
    short = share * sum(shape.heads) - _heads_removed(shape.heads, share, even=True)
    return short * head / (neuron * sum(shape.ffn))


def _check_goal(shape: ShapeInfo, remaining: float, ratio: float, maximum: float) -> None:
    if ratio > maximum:
        minimum = 1 - maximum * _removable_parameters(shape) / layer_parameters(shape)
        raise ModelError(
            f"to.parameters: {remaining:g} of the layers' parameters cannot be reached: every layer keeps at"
            f" least one head and one block of neurons, so the minimum is {minimum:.3f}.",
            hint="give a larger share, give the student fewer layers, or lower prune.round_to",
        )
