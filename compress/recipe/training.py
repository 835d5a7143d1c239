"""The sections about training: fine-tuning, the student, distilling, pruning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from compress.recipe.forms import Count, Frozen, Positive, Share, ShortForm, named


class Checkpoints(Frozen):
    """How often training saves what it needs to go on; never part of a fingerprint."""

    minutes: Positive | None = 5.0
    steps: Count | None = None


class Training(Frozen):
    """One training: the same keys for finetune, distill and the recovery after pruning."""

    epochs: Positive = 3.0
    max_steps: Count | None = None
    batch_size: Count = 32
    accumulate: Count = 1
    learning_rate: Positive = 5e-5
    warmup: Share = 0.1
    """Share of all steps in which the rate rises from zero."""
    decay: Literal["linear", "cosine", "constant"] = "linear"
    weight_decay: float = Field(0.01, ge=0.0)
    clip: Positive | None = 1.0
    """Largest norm of the gradient."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto` takes bf16 autocast where the device has instructions for it."""
    evaluations: Count = 1
    """Evaluations on select in each epoch; the best one's weights are kept."""
    patience: Count | None = None
    """Stop after so many evaluations without a better one."""
    restarts: Count = 1
    """Trainings from different seeds, of which the best on select is kept."""
    freeze: int | Literal["embeddings"] | None = Field(None)
    """`embeddings`, or a number: the embeddings and so many lowest layers keep their weights."""
    layer_decay: float = Field(1.0, gt=0.0, le=1.0)
    """Each lower layer learns at this times the rate of the one above it."""
    checkpoint: Checkpoints = Checkpoints()


class Finetune(Training):
    """Fine-tuning of the teacher. `reuse: false` trains even a teacher that already has a head for this task."""

    reuse: bool = True


class Student(ShortForm):
    """The smaller model: a card, a folder or hub id to start from, or a shape."""

    source: str | None = None
    revision: str | None = None
    layers: float | tuple[int, ...] | None = None
    """A number of layers, a share of the teacher's (0.5), or which of the teacher's layers to take ([1, 3, 5])."""
    hidden: Count | None = None
    heads: Count | None = None
    ffn: Count | None = None
    embedding: Count | None = None
    """Width of a text's embedding (similarity, retrieval): by default the teacher's, whose space is kept."""
    start: Literal["teacher", "random"] | None = None
    """Weights copied from the teacher's layers (the default where the width is the same), or fresh ones."""

    @classmethod
    def short_key(cls) -> str:
        """`student: half-depth`."""
        return "source"

    @field_validator("layers")
    @classmethod
    def _layers_can_be_counted(cls, layers: float | tuple[int, ...] | None) -> float | tuple[int, ...] | None:
        if isinstance(layers, float) and (layers <= 0 or (layers >= 1 and layers != int(layers))):
            raise ValueError(f"expected a number of layers or a share between 0 and 1, got {layers:g}")
        return layers

    @model_validator(mode="after")
    def _some_shape(self) -> Student:
        if self.source is None and self.layers is None:
            raise ValueError("name a student card or folder, or give its number of layers")
        return self


def _collect_losses(value: Any, info: ValidationInfo) -> Any:
    """`{soft_label: 1.0}` is short for `{losses: {soft_label: 1.0}}`: a known loss may stand beside the settings."""
    known = (info.context or {}).get("losses")
    if not isinstance(value, Mapping) or known is None:
        return value
    loose = {key: weight for key, weight in value.items() if key in known}
    if not loose:
        return value
    rest = {key: entry for key, entry in value.items() if key not in known}
    return {**rest, "losses": {**(rest.get("losses") or {}), **loose}}


class Distill(Training):
    """Training of the student on the teacher's answers and inner states."""

    epochs: Positive = 3.0
    losses: Mapping[Annotated[str, named("losses")], float] = {"soft_label": 1.0, "hidden_state": 1.0, "attention": 1.0}
    """The weight of each distillation loss."""
    hard_label: float = Field(0.5, ge=0.0)
    """The weight of the task's own loss on the true labels."""
    temperature: Positive = 4.0
    cross_encoder: str | None = None
    """A folder with a model that ranks pairs of texts, whose margins the loss `margin` follows (retrieval)."""
    layer_map: Literal["uniform", "last", "first"] | tuple[tuple[int, int], ...] = "uniform"
    """Which teacher layer each student layer follows, or pairs [student, teacher] counted from 0."""

    _losses = model_validator(mode="before")(_collect_losses)

    @field_validator("losses")
    @classmethod
    def _weights_are_useful(cls, losses: Mapping[str, float]) -> Mapping[str, float]:
        if any(weight < 0 for weight in losses.values()):
            raise ValueError("a loss cannot weigh less than zero")
        return losses


class Recover(Distill):
    """The distillation that follows pruning."""

    epochs: Positive = 2.0
    losses: Mapping[Annotated[str, named("losses")], float] = {"soft_label": 1.0, "hidden_state": 1.0}


class PruneTo(Frozen):
    """What is left after pruning, instead of what is removed."""

    parameters: float = Field(gt=0.0, lt=1.0)
    """Share of the encoder layers' parameters (without embeddings) that stays."""


class Prune(Frozen):
    """Removal of heads and FFN neurons by first-order Taylor importance, uneven across layers."""

    heads: Share = 0.0
    ffn: Share = 0.0
    to: PruneTo | None = None
    batches: Count = 64
    """Batches of train over which importance is summed."""
    round_to: Count = 16
    """FFN widths are multiples of this: kernels like them."""
    even: bool = False
    """The same share from every layer."""
    recover: Recover | Literal[False] = Recover()

    @model_validator(mode="after")
    def _something_to_prune(self) -> Prune:
        if self.to is None and not (self.heads or self.ffn):
            raise ValueError("say how much: heads: 0.25, ffn: 0.5, or to: {parameters: 0.3}")
        if self.to is not None and (self.heads or self.ffn):
            raise ValueError("give either the shares removed (heads, ffn) or the share left (to)")
        return self
