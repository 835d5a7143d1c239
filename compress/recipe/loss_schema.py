"""What a student is distilled with: a section for each loss, with its weight and the knobs of its own.

A loss may be written as its weight alone: `soft_label: 1.0`. The functions stand in `compress/losses`, by these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from compress.recipe.field_types import Count, Frozen, Positive, ShortForm, listed

Weight = Annotated[float, Field(ge=0.0)]


def _stays(value: Any) -> Any:
    if isinstance(value, Mapping):
        raise ValueError("the weight of the true labels is one number; only weights of losses may move")
    return value


Unmoved = Annotated[float, BeforeValidator(_stays), Field(ge=0.0)]
"""A weight that is the same from beginning to end."""

Side = Literal["query", "key", "value"]

SIDES: dict[str, Side] = {"q": "query", "k": "key", "v": "value"}
"""The letters of relations."""


MOVING = "a weight that moves is told by two keys, {start: 1.0, end: 0.0}"


class Ramp(Frozen):
    """A weight that moves evenly: the first update of its phase has `start`, and after the last `end` is reached."""

    start: Weight
    end: Weight

    @model_validator(mode="before")
    @classmethod
    def _begins_and_ends(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and set(value) != {"start", "end"}:
            raise ValueError(f"{MOVING}; got {', '.join(map(str, value)) or 'nothing'}")
        return value

    @model_validator(mode="after")
    def _weighs_something(self) -> Ramp:
        if self.start == self.end == 0.0:
            raise ValueError("a weight that moves from 0 to 0 weighs nothing")
        return self


class Loss(ShortForm):
    """What every loss has."""

    weight: float | Ramp = 1.0
    """A number, or `{start: 1.0, end: 0.0}` for one that moves."""

    @model_validator(mode="before")
    @classmethod
    def _moves_below_its_weight(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and {"start", "end", "from", "to"} & set(value):
            raise ValueError(f"{MOVING}, below weight: {{weight: {{start: 1.0, end: 0.0}}}}")
        return value

    @field_validator("weight")
    @classmethod
    def _weighs_something(cls, weight: float | Ramp) -> float | Ramp:
        if isinstance(weight, float) and weight < 0:
            raise ValueError(f"a loss cannot weigh less than zero, got {weight:g}")
        return weight

    @classmethod
    def short_key(cls) -> str:
        """`soft_label: 1.0`."""
        return "weight"

    def weight_at(self, progress: float) -> float:
        """The weight after this share (0..1) of its phase."""
        if isinstance(self.weight, Ramp):
            return self.weight.start + (self.weight.end - self.weight.start) * progress
        return self.weight


TARGET, OTHERS = 1.0, 8.0
"""What the two parts of decoupled soft labels weigh."""


class SoftLabel(Loss):
    """The teacher's answers, softened."""

    form: Literal["kl", "mse", "decoupled"] = "kl"
    """Divergence of softened distributions, squared difference of logits, or decoupled knowledge distillation."""
    temperature: Positive | None = None
    """By default that of the distillation."""
    target: Weight = TARGET
    """Decoupled: what the true class against all others weighs."""
    others: Weight = OTHERS
    """Decoupled: what the other classes among themselves weigh."""

    @model_validator(mode="after")
    def _knobs_are_the_form_s(self) -> SoftLabel:
        if self.form == "mse" and self.temperature is not None:
            raise ValueError("form: mse compares logits as they are and has no temperature")
        if self.form != "decoupled" and (self.target, self.others) != (TARGET, OTHERS):
            raise ValueError(f"target and others are parts of form: decoupled; {self.form} has none")
        return self

    @model_validator(mode="after")
    def _parts_weigh_something(self) -> SoftLabel:
        if self.form == "decoupled" and self.target == self.others == 0.0:
            raise ValueError("target and others weigh nothing; leave soft_label out where it should not count")
        return self


class HiddenState(Loss):
    """What the mapped layers hand on."""

    form: Literal["mse", "cosine", "cls"] = "mse"
    """Squared difference, the angle of each token's vector, or the first token's alone, at length one."""


class Embedding(Loss):
    """What the embeddings hand to the first layer."""


class Attention(Loss):
    """Where each word looks."""

    form: Literal["kl", "scores"] = "kl"
    """Divergence of attention maps, or squared difference of the scores before the softmax."""


class Relation(Loss):
    """How alike the queries, keys and values of a text are among themselves."""

    pairs: Annotated[tuple[Literal["qq", "kk", "vv", "qk"], ...], listed] = Field(("qq", "kk", "vv"), min_length=1)
    """Which are compared with which; `[qk, vv]` is MiniLM, the default its second version."""
    heads: Count | None = None
    """Into how many heads queries, keys and values are cut; by default the largest number up to the teacher's that
    divides both widths."""
    layer: int | None = Field(None, ge=0)
    """The teacher's layer, from 0, that the student's last one follows; by default the last."""

    @field_validator("pairs")
    @classmethod
    def _each_once(cls, pairs: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(pairs)) < len(pairs):
            raise ValueError("names a pair twice")
        return pairs

    @property
    def sides(self) -> tuple[Side, ...]:
        """What of a layer the pairs name."""
        return tuple(name for letter, name in SIDES.items() if letter in "".join(self.pairs))


class Similarity(Loss):
    """How the rows of a batch lie to each other."""

    distance: Weight = 1.0
    angle: Weight = 2.0
    pool: Literal["cls", "mean"] = "cls"
    """What stands for a row: its first token's vector, or the mean of all."""

    @model_validator(mode="after")
    def _parts_weigh_something(self) -> Similarity:
        if self.distance == self.angle == 0.0:
            raise ValueError("distance and angle weigh nothing; leave similarity out where it should not count")
        return self


class Contrast(Loss):
    """A row's own teacher among those of all rows of the batch."""

    temperature: Positive = 0.05
    pool: Literal["cls", "mean"] = "cls"


class Margin(Loss):
    """How much better a document is than another, as a cross-encoder says (retrieval)."""


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
    def _without_those_left_out(self, told: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: loss for name, loss in told(self).items() if loss is not None}

    def chosen(self) -> dict[str, Loss]:
        """By name, those that weigh anything at any time."""
        sections: dict[str, Loss | None] = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: loss for name, loss in sections.items() if loss is not None and loss.weight != 0.0}


def collect_losses(value: Any) -> Any:
    """`{soft_label: 1.0}` is short for `{losses: {soft_label: 1.0}}`: a loss may stand beside the settings."""
    if not isinstance(value, dict):
        return value
    loose = {key: entry for key, entry in value.items() if key in Losses.model_fields}
    if not loose:
        return value
    rest = {key: entry for key, entry in value.items() if key not in loose}
    written = rest.get("losses") or {}
    if isinstance(written, Losses):
        written = written.model_dump(exclude_none=True)
    if not isinstance(written, Mapping):
        raise ValueError(f"losses: expected a section with the names of losses as keys, got {written!r}")
    if twice := sorted(loose.keys() & written.keys()):
        raise ValueError(f"{', '.join(twice)}: stands both in losses and beside it; leave one of them out")
    return {**rest, "losses": {**written, **loose}}
