"""How much to cut: a recipe's resolve_ratios against what a model has."""

from __future__ import annotations

from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.families import Family
from compress.models.encoder_parts import family_of, layer_shapes, layers_of, part
from compress.prune.select_units import max_removable, ratio_for_parameters
from compress.recipe.training_schema import Prune


def resolve_ratios(model: PreTrainedModel, settings: Prune) -> tuple[float, float]:
    """The resolve_ratios of heads and of FFN neurons to remove, or a ModelError where a layer would lose all it has."""
    shapes = layer_shapes(model)
    most_heads = max_removable([heads for heads, _ in shapes], even=settings.even)
    most_ffn = max_removable([ffn for _, ffn in shapes], settings.round_to, settings.even)
    if settings.to is not None:
        share = _share_for(model, settings.to.parameters, min(most_heads, most_ffn))
        return share, share
    _check("heads", settings.heads, most_heads, "a head")
    _check("ffn", settings.ffn, most_ffn, f"{settings.round_to} neurons (`round_to`)")
    return settings.heads, settings.ffn


def layer_parameters(model: PreTrainedModel) -> int:
    """Parameters of the encoder's layers, without embeddings and head."""
    return sum(parameter.numel() for layer in layers_of(model) for parameter in layer.parameters())


def _check(name: str, asked: float, most: float, kept: str) -> None:
    if asked > most:
        raise ModelError(
            f"prune.{name}: {asked:g} cannot be removed: every layer keeps {kept}, so {most:.3g} is the most."
        )


def _share_for(model: PreTrainedModel, left: float, most: float) -> float:
    """The share of heads and neurons to remove so that ``left`` of the layers' parameters stay."""
    family, total = family_of(model), layer_parameters(model)
    removable = sum(_removable(model, family))
    share = ratio_for_parameters(left, removable, total - removable)
    if share > most:
        least = 1 - most * removable / total
        raise ModelError(
            f"prune.to.parameters: {left:g} of the layers' parameters cannot be reached: every layer keeps a head "
            f"and a block of neurons; {least:.3f} is the least.",
            hint="ask for more, give the student fewer layers, or lower prune.round_to",
        )
    return share


def _removable(model: PreTrainedModel, family: Family) -> list[int]:
    """By layer, the parameters that belong to a head or a neuron: all but the outputs' biases and normalization."""
    whole = [path for path in (family.query, family.key, family.value, family.ffn_in) if path is not None]
    return [
        sum(parameter.numel() for path in whole for parameter in part(layer, path).parameters())
        + sum(part(layer, path).weight.numel() for path in (family.attention_output, family.ffn_out))
        for layer in layers_of(model)
    ]
