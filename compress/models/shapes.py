"""Uneven shapes: models whose layers differ in heads and FFN width, as checkpoints that describe themselves.

Plain transformers rebuilds every layer from one number of heads and one FFN width, so it cannot load what pruning
leaves. Here each prunable family gets a config with a model_type of its own (`compress-bert`) that lists the layers'
shapes, and for every head a model class that cuts its layers to them before weights are read. Importing
`compress.models` registers both with the Auto classes: `AutoModelForSequenceClassification.from_pretrained(folder)`
and `pipeline()` then work, bit for bit, without remote code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    PreTrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    XLMRobertaConfig,
)

from compress.errors import ModelError
from compress.models.families import (
    UNEVEN,
    Family,
    family_of,
    head_size,
    layer_shapes,
    layers_of,
    part,
    require_prunable,
)
from compress.models.heads import HEADS, head_of

PLAIN: dict[str, type[PreTrainedConfig]] = {
    "bert": BertConfig,
    "roberta": RobertaConfig,
    "xlm-roberta": XLMRobertaConfig,
    "electra": ElectraConfig,
    "distilbert": DistilBertConfig,
}
"""transformers' own config of each prunable family."""


def _uneven_config(name: str, plain: type[PreTrainedConfig]) -> type[PreTrainedConfig]:
    """The family's config with the two fields that uneven layers need (transformers makes it a dataclass)."""
    fields = {"layer_shapes": list[dict[str, int]] | None, "head_size": int | None}
    members = {"model_type": UNEVEN + name, "__annotations__": fields, "__module__": __name__, **dict.fromkeys(fields)}
    return type(f"Compress{plain.__name__}", (plain,), members | {"__doc__": f"A {name} whose layers differ."})


UNEVEN_CONFIGS = {name: _uneven_config(name, plain) for name, plain in PLAIN.items()}
"""The config of each prunable family's uneven shapes."""


class Uneven:
    """Mixed in before a plain model class: builds it, then cuts each layer to the shape that the config lists."""

    def __init__(self, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        assert isinstance(self, PreTrainedModel)
        _cut_layers(self)


def _cut_layers(model: PreTrainedModel) -> None:
    """Give every layer fresh linear parts of the listed shape; their weights are read or set afterwards."""
    config, family = model.config, family_of(model)
    if not config.layer_shapes or len(config.layer_shapes) != config.num_hidden_layers:
        listed = len(config.layer_shapes or ())
        raise ModelError(f"the config lists shapes for {listed} layers, expected {config.num_hidden_layers}.")
    size, hidden = head_size(model), int(config.hidden_size)
    for layer, shape in zip(layers_of(model), config.layer_shapes, strict=True):
        width, ffn = shape["heads"] * size, shape["ffn"]
        widths = {path: (hidden, width) for path in (family.query, family.key, family.value) if path is not None}
        widths |= {
            family.attention_output: (width, hidden),
            family.ffn_in: (hidden, ffn),
            family.ffn_out: (ffn, hidden),
        }
        for path, (entering, leaving) in widths.items():
            if (part(layer, path).in_features, part(layer, path).out_features) != (entering, leaving):
                layer.set_submodule(path, nn.Linear(entering, leaving))
                model._init_weights(layer.get_submodule(path))  # type: ignore[no-untyped-call]
        set_heads(layer, family, shape["heads"], size)


def set_heads(layer: nn.Module, family: Family, heads: int, size: int) -> None:
    """Tell a layer's attention module how many heads its linear parts hold, and how wide each is."""
    attention = layer.get_submodule(family.attention)
    values = dict.fromkeys(family.heads_attributes, heads) | {"attention_head_size": size, "scaling": size**-0.5}
    for name, value in values.items():
        setattr(attention, name, value)


def _uneven_class(plain: type[PreTrainedModel], config: type[PreTrainedConfig]) -> type[PreTrainedModel]:
    """The class that loads ``plain`` models with uneven layers, e.g. CompressBertForSequenceClassification."""
    name = f"Compress{plain.__name__}"
    members = {"config_class": config, "__module__": __name__, "__doc__": f"{plain.__name__} with uneven layers."}
    return type(name, (Uneven, plain), members)


def register() -> None:
    """Make the Auto classes know the uneven shapes; called once, when `compress.models` is imported."""
    for name, uneven in UNEVEN_CONFIGS.items():
        AutoConfig.register(uneven.model_type, uneven)
        for head in HEADS.values():
            head.auto.register(uneven, _uneven_class(head.model_class(PLAIN[name]), uneven))


def settled(model: PreTrainedModel) -> PreTrainedModel:
    """The model in the class whose config tells its shape: plain where transformers can hold it, uneven where not.

    Pruning changes layers in place and leaves config and class behind; this catches them up. Weights are copied into
    a new model, unless nothing has to change.
    """
    shapes, config = layer_shapes(model), model.config
    plain = plain_holds(model, shapes)
    if _told(config) == shapes and plain != config.model_type.startswith(UNEVEN):
        return model
    require_prunable(family_of(model))
    fitting = _fitting_config(config, shapes, None if plain else head_size(model))
    with torch.random.fork_rng(devices=[]):  # the weights drawn here are overwritten
        fresh = from_config(head_of(model).model_class(type(fitting)), fitting, config._attn_implementation)
    fresh.load_state_dict(model.state_dict())
    nn.Module.to(fresh, device=model.device, dtype=model.dtype)
    fresh.train(model.training)
    return fresh


def from_config(cls: type[PreTrainedModel], config: PreTrainedConfig, attention: str = "sdpa") -> PreTrainedModel:
    """A model with fresh weights, drawn from torch's global generator."""
    model: PreTrainedModel = cls._from_config(config, attn_implementation=attention)  # type: ignore[no-untyped-call]
    return model


def plain_holds(model: PreTrainedModel, shapes: Sequence[tuple[int, int]]) -> bool:
    """Whether transformers' own config can tell these shapes: all heads in place and one FFN width."""
    full = int(model.config.hidden_size) // head_size(model)
    return not family_of(model).prunable or (len(set(shapes)) == 1 and shapes[0][0] == full)


def _told(config: PreTrainedConfig) -> list[tuple[int, int]]:
    """(heads, FFN width) of each layer as the config has it."""
    if config.model_type.startswith(UNEVEN):
        return [(shape["heads"], shape["ffn"]) for shape in config.layer_shapes]
    ffn = int(getattr(config, family_of(config).ffn_key))
    return [(int(config.num_attention_heads), ffn)] * int(config.num_hidden_layers)


REPLACED = ("model_type", "layer_shapes", "head_size", "architectures")


def _fitting_config(config: PreTrainedConfig, shapes: list[tuple[int, int]], size: int | None) -> PreTrainedConfig:
    """The config with its shape set right: an uneven one where the head size is given, else a plain one."""
    family = family_of(config)
    kept = {key: value for key, value in config.to_dict().items() if key not in REPLACED}
    fitting = (PLAIN if size is None else UNEVEN_CONFIGS)[family.name].from_dict(kept)
    fitting.num_hidden_layers = len(shapes)
    setattr(fitting, family.ffn_key, max(ffn for _, ffn in shapes))
    if size is not None:
        fitting.head_size = size
        fitting.layer_shapes = [{"heads": heads, "ffn": ffn} for heads, ffn in shapes]
    return fitting
