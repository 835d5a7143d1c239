"""The supported encoder families, one row each: config keys, module paths and capabilities.

Adding a family is one row of `FAMILIES`: hooks, pruning, layer copying, shapes, FLOPs, tokenizer limits, cards and the
tiny test models read everything they need to know about it from here. Neither torch nor transformers is loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from compress.errors import ModelError, nearest

NONUNIFORM_PREFIX = "compress-"
"""Prefix of the model_type of our non-uniform shapes and mean-pooled heads (`compress-bert`)."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture. Module paths are relative to a layer; None where a part is fused with others or absent."""

    name: str
    """transformers' model_type."""
    layers: str
    """Path from the base model to the list of layers."""
    query: str | None = None
    key: str | None = None
    value: str | None = None
    query_key_value: str | None = None
    """The linear layer that computes query, key and value together, where they are fused."""
    attention_output: str
    ffn_in: str
    ffn_out: str
    attention: str
    """The module that splits heads by `attention_head_size`."""

    hidden_key: str = "hidden_size"
    layers_key: str = "num_hidden_layers"
    heads_key: str = "num_attention_heads"
    """Also the attribute of `attention` that must be updated when heads are removed."""
    ffn_key: str = "intermediate_size"
    attention_width_key: str = "hidden_size"
    """Config key of the width that the heads of a layer share."""
    tiny_sizes: Mapping[str, int] = field(default_factory=dict)
    """Further config values that a tiny test model of this family needs."""

    token_types: bool = True
    """Whether the model takes token_type_ids."""
    positions_after_padding: bool = False
    """Position ids start after the padding id, so the first pad_id + 1 rows of the position table are unused."""
    positions: str | None = "embeddings.position_embeddings"
    """Path from the base model to the table of learned positions; None where there is none."""
    one_attention_input: bool = True
    """Query, key and value of a layer are computed from the same tensor."""
    own_embedding_size: bool = False
    """The config has an `embedding_size` separate from the hidden size."""
    projection_if_narrower: bool = False
    """Embeddings are projected to the hidden size only where their sizes differ (ELECTRA)."""
    gated_ffn: bool = False
    """The FFN has a third matrix product, the gate."""
    shared_layers: bool = False
    """One layer's weights serve every depth."""
    prunable: bool = True
    """Whether heads and FFN neurons of a layer can be removed."""
    resizable: bool = True
    """Whether hidden size, heads and FFN width describe the whole shape (MobileBERT's bottlenecks need more)."""
    choice_head_is_sequence_head: bool = True
    """Its multiple-choice class has the weights of its sequence-classification class, under the same names."""
    native_head_pooling: str | None = None
    """Config key by which its own sequence classifier chooses between the first token and the mean (ModernBERT)."""
    exported_as: str = ""
    """How the classes begin whose names its exports have, where other tools do not know its own: of a family with the
    same inputs."""
    joins_neighbours: bool = False
    """The vectors of a token's neighbours are joined to its own, so the one of padding is read (MobileBERT)."""
    has_attention: bool = True
    """Whether it is a transformer; other models have vectors and a head, and perhaps convolutions."""
    reads_order: bool = True
    """Whether what it knows of a token depends on the tokens around it."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The arrays the model takes."""
        return ("input_ids", "attention_mask") + (("token_type_ids",) if self.token_types else ())

    def part_path(self, part: str) -> str:
        """Return the path of the module that computes a part (`hidden`, `query`, `key`, `value`) of a layer.

        Raises:
            ModelError: the family computes it together with others.
        """
        path = {"hidden": "", "query": self.query, "key": self.key, "value": self.value}[part]
        if path is None:
            able = ", ".join(name for name, family in FAMILIES.items() if family.query is not None)
            raise ModelError(
                f"{self.name} computes {part} together with others, so it cannot be captured (possible in: {able}).",
                hint="leave out the losses that compare attention (attention, relation)",
            )
        return path


BERT = Family(
    name="bert",
    layers="encoder.layer",
    attention="attention.self",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    attention_output="attention.output.dense",
    ffn_in="intermediate.dense",
    ffn_out="output.dense",
)
ROBERTA = replace(
    BERT, name="roberta", token_types=False, positions_after_padding=True, choice_head_is_sequence_head=False
)
DISTILBERT = Family(
    name="distilbert",
    layers="transformer.layer",
    attention="attention",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_output="attention.out_lin",
    ffn_in="ffn.lin1",
    ffn_out="ffn.lin2",
    hidden_key="dim",
    layers_key="n_layers",
    heads_key="n_heads",
    ffn_key="hidden_dim",
    attention_width_key="dim",
    token_types=False,
)
ALBERT = Family(
    name="albert",
    layers="encoder.albert_layer_groups.0.albert_layers",
    attention="attention",
    query="attention.query",
    key="attention.key",
    value="attention.value",
    attention_output="attention.dense",
    ffn_in="ffn",
    ffn_out="ffn_output",
    tiny_sizes={"embedding_size": 16},
    own_embedding_size=True,
    shared_layers=True,
    prunable=False,
)
MODERNBERT = Family(
    name="modernbert",
    layers="layers",
    attention="attn",
    query_key_value="attn.Wqkv",
    attention_output="attn.Wo",
    ffn_in="mlp.Wi",
    ffn_out="mlp.Wo",
    token_types=False,
    positions=None,
    gated_ffn=True,
    prunable=False,
    native_head_pooling="classifier_pooling",
)
ELECTRA = replace(
    BERT,
    name="electra",
    tiny_sizes={"embedding_size": 16},
    own_embedding_size=True,
    projection_if_narrower=True,
    choice_head_is_sequence_head=False,
)
MOBILEBERT = replace(
    BERT,
    name="mobilebert",
    attention_width_key="true_hidden_size",
    tiny_sizes={"embedding_size": 16, "intra_bottleneck_size": 32, "num_feedforward_networks": 2},
    one_attention_input=False,
    own_embedding_size=True,
    prunable=False,
    resizable=False,
    joins_neighbours=True,
)

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        BERT,
        ROBERTA,
        replace(ROBERTA, name="xlm-roberta"),
        ELECTRA,
        DISTILBERT,
        ALBERT,
        MOBILEBERT,
        MODERNBERT,
    )
}

STATIC = Family(
    name="static",
    layers="convolutions",
    attention="",
    attention_output="",
    ffn_in="",
    ffn_out="",
    token_types=False,
    positions=None,
    prunable=False,
    resizable=False,
    exported_as="DistilBert",
    has_attention=False,
    reads_order=False,
)
LIGHT_FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (STATIC, replace(STATIC, name="conv", reads_order=True))
}
"""Students without attention, which are made here alone: no teacher is one, and each has a model_type of ours."""

OTHER_POSITIONS_AFTER_PADDING = ("camembert",)
"""Families that exported models may have, though their checkpoints are not supported here."""


def plain_model_type(model_type: str) -> str:
    """The family name behind a config's model_type, without the prefix of non-uniform shapes."""
    return model_type.removeprefix(NONUNIFORM_PREFIX)


def family_named(model_type: str) -> Family:
    """Return the family of a config's model_type; raise `ModelError` naming the nearest one if it is unknown."""
    name = plain_model_type(model_type)
    if model_type != name and name in LIGHT_FAMILIES:
        return LIGHT_FAMILIES[name]
    if name not in FAMILIES:
        raise ModelError(f"model family '{name}' is not supported{nearest(name, FAMILIES)}.")
    return FAMILIES[name]


def max_positions(config: Mapping[str, Any], pad_id: int | None) -> int | None:
    """The longest input in tokens that a config's position table allows; None where the config has no table."""
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int) or positions <= 0:
        return None
    name = plain_model_type(str(config.get("model_type", "")))
    family = FAMILIES.get(name)
    offset = family.positions_after_padding if family else name in OTHER_POSITIONS_AFTER_PADDING
    return positions - pad_id - 1 if offset and pad_id is not None else positions


def require_prunable(family: Family) -> None:
    """Raise `ModelError` for families whose heads and neurons cannot be removed, and name those that allow it."""
    if not family.prunable:
        able = ", ".join(name for name, entry in FAMILIES.items() if entry.prunable)
        raise ModelError(
            f"{family.name} cannot be pruned: its layers are shared, stacked or fused. Prunable families: {able}.",
            hint="leave `prune` out of the recipe, or distil into a student of another family",
        )


def check_freeze(family: Family, layers: int, count: int) -> None:
    """Refuse to freeze the ``count`` lowest of ``layers`` layers where there are fewer, or they share their weights."""
    if count and family.shared_layers:
        raise ModelError(f"freeze: {count} is not possible: the layers of {family.name} share their weights.")
    if count > layers:
        raise ModelError(f"freeze: {count} exceeds the model's number of layers ({layers}).")
