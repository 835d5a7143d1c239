"""Distillation losses of a recipe: one section a loss, with its weight and its own settings.

A loss may be written as its weight alone: `soft_label: 1.0`. The functions are in `compress/losses`, by these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from compress.recipe.field_types import Count, Frozen, Index, Positive, ShortForm, Weight, as_list

Side = Literal["query", "key", "value"]

SIDES: dict[str, Side] = {"q": "query", "k": "key", "v": "value"}
"""The letters of relations."""
MARGIN_LOSS = "margin"
"""The key of the loss that needs a cross-encoder."""


class Ramp(Frozen):
    """A weight that changes linearly: the first update of its phase has `start`, and after the last it is `end`."""

    start: Weight
    end: Weight


class Loss(ShortForm):
    """Base of every loss's section."""

    short_key = "weight"
    """`soft_label: 1.0`"""
    weight: Weight | Ramp = 1.0
    """A number, or `{start: 1.0, end: 0.0}` for a weight that changes linearly."""

    def weight_at(self, progress: float) -> float:
        """Return the weight at this fraction (0..1) of its phase."""
        if isinstance(self.weight, Ramp):
            return self.weight.start + (self.weight.end - self.weight.start) * progress
        return self.weight


TARGET, OTHERS = 1.0, 8.0
"""Default weights of the two parts of decoupled soft labels."""


class SoftLabel(Loss):
    """The teacher's outputs, softened by a temperature."""

    form: Literal["kl", "mse", "decoupled"] = "kl"
    """Divergence of softened distributions, squared difference of logits, or decoupled knowledge distillation."""
    temperature: Positive | None = None
    """By default that of the distillation."""
    target: Weight = TARGET
    """Decoupled: weight of the true class against all others."""
    others: Weight = OTHERS
    """Decoupled: weight of the other classes among themselves."""

    @model_validator(mode="after")
    def _check_form(self) -> SoftLabel:
        if self.form == "mse" and self.temperature is not None:
            raise ValueError("form: mse compares logits as they are and has no temperature")
        if self.form != "decoupled" and (self.target, self.others) != (TARGET, OTHERS):
            raise ValueError(f"target and others are parts of form: decoupled; {self.form} has none")
        return self


class HiddenState(Loss):
    """The hidden states of mapped layers."""

    form: Literal["mse", "cosine", "cls"] = "mse"
    """Squared difference, the angle of each token's vector, or the first token's vector alone, normalised."""


class Embedding(Loss):
    """The output of the embeddings, which is the input of the first layer."""


class Attention(Loss):
    """The attention maps of mapped layers."""

    form: Literal["kl", "scores"] = "kl"
    """Divergence of attention maps, or squared difference of the scores before the softmax."""


class Relation(Loss):
    """The self-relations of the queries, keys and values of a text."""

    pairs: Annotated[tuple[Literal["qq", "kk", "vv", "qk"], ...], as_list] = Field(("qq", "kk", "vv"), min_length=1)
    """Which are compared with which; `[qk, vv]` is MiniLM, the default its second version."""
    heads: Count | None = None
    """Number of heads that queries, keys and values are split into; by default the largest number up to the teacher's
    that divides both widths."""
    layer: Index | None = None
    """The teacher's layer, from 0, that the student's last one follows; by default the last."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """The projections that the pairs name."""
        return tuple(name for letter, name in SIDES.items() if letter in "".join(self.pairs))


class Similarity(Loss):
    """The distances and angles between the rows of a batch."""

    distance: Weight = 1.0
    angle: Weight = 2.0
    pool: Literal["cls", "mean"] = "cls"
    """What represents a row: its first token's vector, or the mean of all."""


class Contrast(Loss):
    """A row's own teacher vector among those of all rows of the batch."""

    temperature: Positive = 0.05
    pool: Literal["cls", "mean"] = "cls"


class Margin(Loss):
    """How much better one document is than another, according to a cross-encoder (retrieval)."""


class Losses(Frozen):
    """The losses that are added up; those left out are not computed."""

    soft_label: SoftLabel | None = None
    hidden_state: HiddenState | None = None
    embedding: Embedding | None = None
    attention: Attention | None = None
    relation: Relation | None = None
    similarity: Similarity | None = None
    contrast: Contrast | None = None
    margin: Margin | None = None

    @model_serializer(mode="wrap")
    def _omit_none(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: loss for name, loss in serialize(self).items() if loss is not None}

    def chosen(self) -> dict[str, Loss]:
        """Return by name the losses whose weight is not zero."""
        sections: dict[str, Loss | None] = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: loss for name, loss in sections.items() if loss is not None and loss.weight != 0.0}


def collect_losses(value: Any) -> Any:
    """Move losses written directly in a section into `losses`: `{soft_label: 1.0}` → `{losses: {soft_label: 1.0}}`."""
    direct = (
        {key: entry for key, entry in value.items() if key in Losses.model_fields} if isinstance(value, dict) else {}
    )
    if not direct:
        return value
    written = value.get("losses") or {}
    if not isinstance(written, Mapping):
        raise ValueError(f"losses: expected a section with the names of losses as keys, got {str(written)[:60]}")
    if twice := sorted(direct.keys() & written.keys()):
        raise ValueError(f"{', '.join(twice)}: is given both in losses and directly; leave one of them out")
    rest = {key: entry for key, entry in value.items() if key not in direct}
    return {**rest, "losses": {**written, **direct}}
