"""The shares of heads and neurons to remove: the recipe's settings applied to a model."""

from __future__ import annotations

from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.models.encoder_parts import family_of, layer_shapes, layers_of, part
from compress.prune.allocation import max_removable
from compress.recipe.training_schema import Prune


def resolve_ratios(model: PreTrainedModel, settings: Prune) -> tuple[float, float]:
    """Return the shares of heads and of FFN neurons to remove; raise `ModelError` if a layer would lose all of them."""
    shapes = layer_shapes(model)
    max_heads = max_removable([heads for heads, _ in shapes], even=settings.even)
    max_ffn = max_removable([ffn for _, ffn in shapes], settings.round_to, settings.even)
    if settings.to is not None:
        ratio = _ratio_for_goal(model, settings.to.parameters, min(max_heads, max_ffn))
        return ratio, ratio
    _check("heads", settings.heads, max_heads, "one head")
    _check("ffn", settings.ffn, max_ffn, f"{settings.round_to} neurons (`round_to`)")
    return settings.heads, settings.ffn


def layer_parameters(model: PreTrainedModel) -> int:
    """Return the number of parameters of the encoder's layers, without embeddings and head."""
    return sum(parameter.numel() for layer in layers_of(model) for parameter in layer.parameters())


def _check(key: str, ratio: float, maximum: float, minimum_kept: str) -> None:
    if ratio > maximum:
        raise ModelError(
            f"prune.{key}: {ratio:g} cannot be removed: every layer keeps at least {minimum_kept}, so the maximum is"
            f" {maximum:.3g}."
        )


def _ratio_for_goal(model: PreTrainedModel, remaining: float, maximum: float) -> float:
    """Return the share of heads and neurons to remove so that ``remaining`` of the layers' parameters are left."""
    total, removable = layer_parameters(model), _removable_parameters(model)
    ratio = (1.0 - remaining) * total / removable
    if ratio > maximum:
        minimum = 1 - maximum * removable / total
        raise ModelError(
            f"prune.to.parameters: {remaining:g} of the layers' parameters cannot be reached: every layer keeps at"
            f" least one head and one block of neurons, so the minimum is {minimum:.3f}.",
            hint="give a larger share, give the student fewer layers, or lower prune.round_to",
        )
    return ratio


def _removable_parameters(model: PreTrainedModel) -> int:
    """Return the number of parameters that belong to a head or neuron: all but output biases and normalization."""
    family = family_of(model)
    inputs = [path for path in (family.query, family.key, family.value, family.ffn_in) if path is not None]
    return sum(
        sum(parameter.numel() for path in inputs for parameter in part(layer, path).parameters())
        + sum(part(layer, path).weight.numel() for path in (family.attention_output, family.ffn_out))
        for layer in layers_of(model)
    )
