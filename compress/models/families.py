"""Where each encoder family keeps its parts: dotted paths, in one explicit table.

Everything that reaches into a model (hooks, pruning, layer copying, shapes) goes through here, so that a family is
one row and no other file knows that DistilBERT calls its query ``q_lin``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from compress.errors import ModelError, nearest
from compress.model_info import ShapeInfo

UNEVEN = "compress-"
"""Prefix of the model_type of our uneven shapes (`compress-bert`)."""


@dataclass(frozen=True)
class Family:
    """One architecture. Paths of parts are relative to a layer; None where the part is fused with others or absent."""

    name: str
    """transformers' model_type."""
    layers: str
    """From the base model to the list of layers."""
    query: str | None
    key: str | None
    value: str | None
    attention_output: str
    ffn_in: str
    ffn_out: str
    attention: str
    """The module that views by `attention_head_size`."""
    heads_attributes: tuple[str, ...]
    """Attributes of `attention` that hold the number of heads and must follow when heads are cut."""
    query_key_value: str | None = None
    """The part that computes all three, one after the other, where they are not apart."""
    ffn_key: str = "intermediate_size"
    """The config key of the FFN width (the other sizes have one name in all configs)."""
    token_types: bool = True
    """Whether the model is given token_type_ids."""
    shared_layers: bool = False
    """One layer's weights serve every depth."""
    prunable: bool = True
    """Whether heads and FFN neurons of a layer can be cut."""
    resizable: bool = True
    """Whether one hidden size, number of heads and FFN width give the whole shape."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The arrays the model takes."""
        return ("input_ids", "attention_mask") + (("token_type_ids",) if self.token_types else ())


BERT = Family(
    "bert",
    layers="encoder.layer",
    attention="attention.self",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    attention_output="attention.output.dense",
    ffn_in="intermediate.dense",
    ffn_out="output.dense",
    heads_attributes=("num_attention_heads",),
)
DISTILBERT = Family(
    "distilbert",
    layers="transformer.layer",
    attention="attention",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_output="attention.out_lin",
    ffn_in="ffn.lin1",
    ffn_out="ffn.lin2",
    heads_attributes=("n_heads",),
    ffn_key="hidden_dim",
    token_types=False,
)
ALBERT = Family(
    "albert",
    layers="encoder.albert_layer_groups.0.albert_layers",
    attention="attention",
    query="attention.query",
    key="attention.key",
    value="attention.value",
    attention_output="attention.dense",
    ffn_in="ffn",
    ffn_out="ffn_output",
    heads_attributes=("num_attention_heads",),
    shared_layers=True,
    prunable=False,
)
MODERNBERT = Family(
    "modernbert",
    layers="layers",
    attention="attn",
    query=None,
    key=None,
    value=None,
    query_key_value="attn.Wqkv",
    attention_output="attn.Wo",
    ffn_in="mlp.Wi",
    ffn_out="mlp.Wo",
    heads_attributes=(),
    token_types=False,
    prunable=False,
)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        BERT,
        replace(BERT, name="roberta", token_types=False),
        replace(BERT, name="xlm-roberta", token_types=False),
        replace(BERT, name="electra"),
        DISTILBERT,
        ALBERT,
        replace(BERT, name="mobilebert", prunable=False, resizable=False),
        MODERNBERT,
    )
}


def family_of(model: PreTrainedModel | PreTrainedConfig) -> Family:
    """The family of a model or its config (an uneven shape belongs to the family it was pruned from)."""
    config = model.config if isinstance(model, PreTrainedModel) else model
    return family_named(str(config.model_type))


def family_named(model_type: str) -> Family:
    """The family of a config's model_type."""
    name = model_type.removeprefix(UNEVEN)
    if name not in FAMILIES:
        raise ModelError(f"models of type '{name}' are not known here{nearest(name, FAMILIES)}.")
    return FAMILIES[name]


def require_prunable(family: Family) -> None:
    """Refuse families whose heads and neurons cannot be cut, and say which can."""
    if not family.prunable:
        able = ", ".join(name for name, entry in FAMILIES.items() if entry.prunable)
        raise ModelError(
            f"{family.name} cannot be pruned: its layers are shared, stacked or fused. Prunable families: {able}.",
            hint="leave `prune` out of the recipe, or distil into a student of another family",
        )


def base_of(model: PreTrainedModel) -> PreTrainedModel:
    """The encoder without its head."""
    base = model.base_model
    assert isinstance(base, PreTrainedModel)
    return base


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """The layers in order of depth; a shared layer stands once for each depth."""
    family = family_of(model)
    if not family.shared_layers:
        return list(base_of(model).get_submodule(family.layers).children())
    if model.config.num_hidden_groups != 1 or model.config.inner_group_num != 1:
        raise ModelError(f"{family.name} with several layer groups is not supported; got a config with more than one.")
    return list(base_of(model).get_submodule(family.layers).children()) * int(model.config.num_hidden_layers)


def part(layer: nn.Module, path: str) -> nn.Linear:
    """One linear part of a layer, by its path in the family."""
    module = layer.get_submodule(path)
    if not isinstance(module, nn.Linear):
        raise ModelError(f"{path} should be a linear layer and is a {type(module).__name__}.")
    return module


def head_size(model: PreTrainedModel | PreTrainedConfig) -> int:
    """The width of one attention head, which pruning leaves alone."""
    config = model.config if isinstance(model, PreTrainedModel) else model
    if isinstance(size := getattr(config, "head_size", None), int):
        return size  # an uneven shape, whose number of heads no longer gives it
    width = config.true_hidden_size if config.model_type == "mobilebert" else config.hidden_size
    return int(width) // int(config.num_attention_heads)


def layer_shapes(model: PreTrainedModel) -> list[tuple[int, int]]:
    """(heads, FFN width) of each layer, read from the weights and not from what the config says."""
    family, size = family_of(model), head_size(model)
    pairs = [(part(layer, family.attention_output), part(layer, family.ffn_out)) for layer in layers_of(model)]
    return [(attention.in_features // size, ffn.in_features) for attention, ffn in pairs]


def shape_of(model: PreTrainedModel) -> ShapeInfo:
    """The size of a model as compress.json tells it."""
    shapes = layer_shapes(model)
    embeddings = base_of(model).get_submodule("embeddings")
    hidden, width = int(model.config.hidden_size), _vector_width(model)
    return ShapeInfo(
        family=family_of(model).name,
        hidden=hidden,
        heads=tuple(heads for heads, _ in shapes),
        ffn=tuple(ffn for _, ffn in shapes),
        vocabulary=int(model.config.vocab_size),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        embedding_parameters=sum(parameter.numel() for parameter in embeddings.parameters()),
        head_size=head_size(model),
        embedding_size=width if width != hidden else None,
    )


def _vector_width(model: PreTrainedModel) -> int:
    """The width of a word vector, read from the module that looks it up."""
    vectors = model.get_input_embeddings()
    assert isinstance(vectors, nn.Embedding)
    return vectors.embedding_dim
