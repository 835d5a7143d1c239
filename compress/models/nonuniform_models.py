"""Non-uniform models: what the configs of transformers cannot describe, as self-describing checkpoints.

Plain transformers builds every layer from one number of heads and one FFN width, with heads that divide the hidden
size, and word vectors from one table; so it cannot load models that were pruned, sliced or factorised, and its
classifiers read the first token. Here each family gets a config with its own model_type (`compress-bert`) that lists
the layers' shapes, the factors and the head's pooling, and for every head a model class that takes this shape before
weights are loaded. Importing `compress.models` registers both with the Auto classes:
`AutoModelForSequenceClassification.from_pretrained(folder)` and `pipeline()` then work, bit for bit, without remote
code.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel

from compress.families import FAMILIES, NONUNIFORM_PREFIX, Family
from compress.model_shapes import shape_of_config
from compress.models.encoder_parts import family_of, head_size, layer_shapes, layers_of, part
from compress.models.heads import HEADS, head_of
from compress.models.last_layers_head import LastLayersHead
from compress.models.mean_pooled_head import MeanPooledHead
from compress.models.student.factorised_embeddings import factor_count, install_factors

POOLED = HEADS["sequence-classification"]
"""The head that can read the mean of all tokens."""
LINEAR = [HEADS[name] for name in ("sequence-classification", "token-classification", "question-answering")]
"""The heads that can read several layers."""
PLAIN_CONFIGS: dict[str, type[PreTrainedConfig]] = {name: CONFIG_MAPPING[name] for name in FAMILIES}
"""transformers' own config of each family."""
FIELDS = {
    "layer_shapes": list[dict[str, int]] | None,
    "head_size": int | None,
    "factors": int | None,
    "head_pooling": Literal["mean"] | None,
    "head_features": Literal["last4"] | None,
    "head_layers": Literal["bilstm"] | None,
}
"""What our configs describe besides."""


def _nonuniform_config(name: str, plain: type[PreTrainedConfig]) -> type[PreTrainedConfig]:
    """Return the family's config with our fields (transformers makes it a dataclass)."""
    members = {
        "model_type": NONUNIFORM_PREFIX + name,
        "__annotations__": FIELDS,
        "__module__": __name__,
        **dict.fromkeys(FIELDS),
    }
    return type(f"Compress{plain.__name__}", (plain,), members | {"__doc__": f"A {name} of a non-uniform shape."})


NONUNIFORM_CONFIGS = {name: _nonuniform_config(name, plain) for name, plain in PLAIN_CONFIGS.items()}
"""The config class of each family's non-uniform shapes."""


class NonUniform:
    """Mixin before a plain model class: builds it, then gives its layers and word vectors the config's shape."""

    def __init__(self, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        assert isinstance(self, PreTrainedModel)
        if self.config.factors is not None:
            install_factors(self, self.config.factors)
        if family_of(self).prunable:
            _resize_layers(self)


def _resize_layers(model: PreTrainedModel) -> None:
    """Give every layer new linear parts of the listed shape; their weights are loaded or set afterwards."""
    config, family = model.config, family_of(model)
    size, hidden = head_size(model), int(config.hidden_size)
    for layer, shape in zip(layers_of(model), config.layer_shapes, strict=True):
        width, ffn = shape["heads"] * size, shape["ffn"]
        widths = {path: (hidden, width) for path in (family.query, family.key, family.value) if path is not None}
        widths |= {
            family.attention_output: (width, hidden),
            family.ffn_in: (hidden, ffn),
            family.ffn_out: (ffn, hidden),
        }
        for path, (inputs, outputs) in widths.items():
            if (part(layer, path).in_features, part(layer, path).out_features) != (inputs, outputs):
                layer.set_submodule(path, nn.Linear(inputs, outputs))
                model._init_weights(layer.get_submodule(path))  # type: ignore[no-untyped-call]
        set_head_count(layer, family, shape["heads"], size)


def set_head_count(layer: nn.Module, family: Family, heads: int, size: int) -> None:
    """Set the number of heads and their width in a layer's attention module, after its linear parts."""
    attention = layer.get_submodule(family.attention)
    for name, value in {family.heads_key: heads, "attention_head_size": size, "scaling": size**-0.5}.items():
        setattr(attention, name, value)


def _nonuniform_class(plain: type[PreTrainedModel], config: type[PreTrainedConfig]) -> type[PreTrainedModel]:
    """Return the class for ``plain`` models with non-uniform layers, e.g. CompressBertForSequenceClassification."""
    name = f"Compress{plain.__name__}"
    members = {"config_class": config, "__module__": __name__, "__doc__": f"{plain.__name__} with non-uniform layers."}
    heads = {LastLayersHead: LINEAR, MeanPooledHead: (POOLED,)}
    mixed = [mixin for mixin, mixed_in in heads.items() if plain.__name__.endswith(tuple(h.suffix for h in mixed_in))]
    return type(name, (NonUniform, *mixed, plain), members)


def register_auto_classes() -> None:
    """Register the non-uniform shapes with the Auto classes; called once, when `compress.models` is imported."""
    for name, nonuniform in NONUNIFORM_CONFIGS.items():
        AutoConfig.register(nonuniform.model_type, nonuniform)
        for head in HEADS.values():
            head.auto.register(nonuniform, _nonuniform_class(head.model_class(PLAIN_CONFIGS[name]), nonuniform))


def match_config_to_weights(model: PreTrainedModel) -> PreTrainedModel:
    """Return the model in the class whose config describes its weights: plain if transformers can, else non-uniform.

    Pruning changes layers in place, so that config and class no longer fit. Weights are copied into a new model, unless
    nothing has to change.
    """
    config = model.config
    if not family_of(config).has_attention:
        return model
    changed = reshape_config(
        config, int(config.hidden_size), layer_shapes(model), head_size(model), factor_count(model)
    )
    if changed.to_dict() == config.to_dict():
        return model
    with torch.random.fork_rng(devices=[]):  # the weights drawn here are overwritten
        fresh = from_config(head_of(model).model_class(type(changed)), changed, config._attn_implementation)
    fresh.load_state_dict(model.state_dict())
    nn.Module.to(fresh, device=model.device, dtype=model.dtype)
    fresh.train(model.training)
    return fresh


def from_config(cls: type[PreTrainedModel], config: PreTrainedConfig, attention: str = "sdpa") -> PreTrainedModel:
    """Return a model with weights drawn from torch's global generator."""
    model: PreTrainedModel = cls._from_config(config, attn_implementation=attention)  # type: ignore[no-untyped-call]
    return model


REPLACED = ("model_type", "layer_shapes", "head_size", "factors", "architectures")
"""Keys that are not carried over between plain and non-uniform configs."""


def reshape_config(
    config: PreTrainedConfig, hidden: int, shapes: Sequence[tuple[int, int]], size: int, factors: int | None = None
) -> PreTrainedConfig:
    """Return a copy of a config with another shape, of the plain class if that can describe it, else non-uniform.

    Args:
        config: of any model of the family.
        hidden: the hidden size.
        shapes: (heads, FFN width) of each layer.
        size: width of a head.
        factors: rank of factorised word vectors.
    """
    family = family_of(config)
    even = not family.prunable or (len(set(shapes)) == 1 and shapes[0][0] * size == hidden)
    own_head = any(getattr(config, name, None) for name in ("head_pooling", "head_features"))
    plain = even and factors is None and not own_head
    target = (PLAIN_CONFIGS if plain else NONUNIFORM_CONFIGS).get(family.name, type(config))
    changed: PreTrainedConfig = copy.deepcopy(config)
    if type(config) is not target:
        changed = target.from_dict({key: value for key, value in config.to_dict().items() if key not in REPLACED})
    heads, ffn = max(heads for heads, _ in shapes), max(ffn for _, ffn in shapes)
    changed.hidden_size, changed.num_hidden_layers = hidden, len(shapes)
    setattr(changed, family.ffn_key, ffn)
    # Plain classes need heads that divide the hidden size, even if their layers are resized afterwards.
    changed.num_attention_heads = heads if hidden % heads == 0 else math.gcd(heads, hidden)
    if not plain:
        changed.factors = factors
        changed.head_size = size
        changed.layer_shapes = [{"heads": heads, "ffn": ffn} for heads, ffn in shapes] if family.prunable else None
    return changed


def with_head_features(config: PreTrainedConfig, features: str | None, layers: str | None = None) -> PreTrainedConfig:
    """Return the config of a model whose head reads several layers (`last4`), or the last one as its family does.

    ``layers`` are the head's own before the linear one (`bilstm`).
    """
    if reads_features(config, features, layers):
        return config
    changed = copy.deepcopy(config)
    changed.update({"head_features": features, "head_layers": layers})
    shape = shape_of_config(config.to_dict())
    shapes = list(zip(shape.heads, shape.ffn, strict=True))
    return reshape_config(changed, shape.hidden, shapes, head_size(config), getattr(config, "factors", None))


def reads_features(config: PreTrainedConfig, features: str | None, layers: str | None = None) -> bool:
    """Return whether a head reads these features, through these layers of its own."""
    return (getattr(config, "head_features", None), getattr(config, "head_layers", None)) == (features, layers)


def with_head_pooling(config: PreTrainedConfig, pooling: str | None) -> PreTrainedConfig:
    """Return the config of a model whose classifier reads the mean of all tokens (`mean`), or the family's own head.

    Families whose own head has a setting for it keep their plain config; None leaves that setting as it is.
    """
    if key := family_of(config).native_head_pooling:
        config.update({key: pooling or getattr(config, key)})
        return config
    wanted = "mean" if pooling == "mean" else None
    if getattr(config, "head_pooling", None) == wanted:
        return config
    pooled = copy.deepcopy(config)
    pooled.head_pooling = wanted
    shape = shape_of_config(config.to_dict())
    layers = list(zip(shape.heads, shape.ffn, strict=True))
    return reshape_config(pooled, shape.hidden, layers, head_size(config), getattr(config, "factors", None))
