"""Trainings that learn from another model: distillation, recovery after pruning, quantization-aware training.

With their sections: phases, further teachers, the cache of teacher outputs, and augmented texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from compress.recipe.field_types import (
    Frozen,
    Natural,
    Number,
    PathText,
    Positive,
    ShortForm,
    Weight,
    as_list,
    size,
    switched,
)
from compress.recipe.loss_schema import Attention, HiddenState, Losses, Ramp, SoftLabel, collect_losses
from compress.recipe.training_schema import EpochBounds, Layer, Training

DEFAULT_CACHE_BYTES = 2 * 2**30
"""Size of the teacher cache on disk where the recipe gives none."""


class Phase(Frozen):
    """A part of a training with losses of its own: TinyBERT first learns layers, then outputs."""

    share: Number = Field(gt=0.0, le=1.0)
    """Of all updates; the shares of all phases add up to 1."""
    losses: Losses = Losses()
    hard_label: Weight = 0.0

    _losses = model_validator(mode="before")(collect_losses)


class FurtherTeacher(ShortForm):
    """A model folder or hub id trained on the same task; its outputs are averaged with the teacher's."""

    short_key = "source"
    """`teachers: [folder]`"""
    source: PathText
    revision: PathText | None = None
    weight: Positive = 1.0
    """The recipe's own teacher has weight 1."""


class Cache(ShortForm):
    """The teacher's outputs, stored on disk between epochs."""

    short_key = "disk"
    """`cache: 20GiB`"""
    disk: Annotated[int, Field(strict=True, ge=0, le=2**50), size] | None = None
    """Largest size in bytes; `2GiB`, `500MB`. By default 2 GiB, and on a GPU for outputs alone, without layers."""

    @property
    def limit(self) -> int:
        """The largest size in bytes, given or by default."""
        return DEFAULT_CACHE_BYTES if self.disk is None else self.disk


class Augment(Frozen):
    """More texts to distil on: training rows with words replaced by predictions of a masked language model."""

    model: PathText
    """A folder or hub id (`owner/name@revision`) with a masked language model."""
    copies: Natural = Field(1, le=1_000)
    """New rows made of each row of train."""
    replace: Number = Field(0.4, gt=0.0, le=1.0)
    """The share of words that are replaced."""
    candidates: Natural = Field(15, le=100_000)
    """Each replacement is drawn from this many of the most probable words."""


def _each_once(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if twice := next((pair for pair in pairs if pairs.count(pair) > 1), None):
        raise ValueError(f"names the pair {list(twice)} twice, which would count twice")
    return pairs


LayerPairs = Annotated[tuple[tuple[Layer, Layer], ...], Field(min_length=1), AfterValidator(_each_once)]

DEFAULT_LOSSES = Losses(soft_label=SoftLabel(), hidden_state=HiddenState(), attention=Attention())

OUTPUT_LOSSES = Losses(soft_label=SoftLabel())
MEAN_PART = 0.3
"""What the mean part of a shared student computes, as a share of all of it."""
RECOVER_LOSSES = Losses(soft_label=SoftLabel(), hidden_state=HiddenState())

BATCH_LOSSES = frozenset({"similarity", "contrast"})
"""The losses that compare the texts of a batch with each other."""


class Distill(Training):
    """Training of the student on the teacher's outputs and inner states."""

    purpose: ClassVar = "distill"
    losses: Losses = DEFAULT_LOSSES
    """The weight and settings of each loss."""
    hard_label: Weight = 0.5
    """The weight of the task's own loss on the true labels."""
    temperature: Positive = 4.0
    phases: tuple[Phase, ...] = ()
    """Phases in order, instead of `losses` and `hard_label` for the whole training."""
    cross_encoder: PathText | None = None
    """A folder with a model that ranks pairs of texts, whose margins the loss `margin` learns (retrieval)."""
    layer_map: Literal["uniform", "last", "first", "measured"] | LayerPairs = "uniform"
    """Which teacher layer each student layer follows, or pairs [student, teacher] counted from 0; `measured` takes the
    layers that are most alike on a sample of train."""
    teachers: Annotated[tuple[FurtherTeacher, ...], as_list] = ()
    """Further teachers, whose outputs are averaged with those of the recipe's own."""
    cache: Annotated[Cache | Literal[False], switched] = Cache()
    augment: Augment | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_losses_or_phases(cls, value: Any) -> Any:
        value = collect_losses(value)
        if not isinstance(value, Mapping):
            return value
        losses = value.get("losses")
        has_losses = isinstance(losses, Mapping) and any(loss is not None for loss in losses.values())
        if value.get("phases") and (has_losses or "hard_label" in value):
            raise ValueError(
                "phases have losses of their own, so losses and hard_label cannot be given outside them. Move them into"
                " the phases, or leave phases out (--set of this section's losses=null and hard_label=null)"
            )
        if value.get("losses", DEFAULT_LOSSES) is None or value.get("phases"):
            return {key: entry for key, entry in value.items() if key != "losses"}
        return value

    @model_validator(mode="after")
    def _check_batch_size(self) -> Distill:
        needing_batch = self.loss_names() & BATCH_LOSSES
        if self.batch_size == 1 and needing_batch:
            raise ValueError(f"{', '.join(sorted(needing_batch))}: compares the texts of a batch, and batch_size is 1")
        return self

    @model_validator(mode="after")
    def _check_bounds(self) -> Distill:
        faults = []
        if isinstance(self.epochs, EpochBounds):
            faults.append("epochs: give a number")
        if self.minutes is not None:
            faults.append("minutes: a limit of time may end the training before the last of them; give max_steps")
        if faults and self.losses_change:
            raise ValueError(f"phases, and weights from start to end, are shares of all updates ({'; '.join(faults)})")
        return self

    @field_validator("phases")
    @classmethod
    def _check_phases(cls, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        total = sum(phase.share for phase in phases)
        if phases and abs(total - 1.0) > 1e-6:
            raise ValueError(f"the shares of all phases should add up to 1; they make {total:g}")
        return phases

    @model_serializer(mode="wrap")
    def _omit_what_phases_replace(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        replaced = ("losses", "hard_label") if self.phases else ()
        return {key: value for key, value in serialize(self).items() if key not in replaced}

    def loss_names(self) -> set[str]:
        """Return the losses whose weight is not zero in some phase."""
        return {name for phase in self.phases_or_default() for name in phase.losses.chosen()}

    @property
    def losses_change(self) -> bool:
        """Whether the losses or their weights depend on the share of all updates that are done."""
        chosen = [loss for phase in self.phases_or_default() for loss in phase.losses.chosen().values()]
        return bool(self.phases) or any(isinstance(loss.weight, Ramp) for loss in chosen)

    def phases_or_default(self) -> tuple[Phase, ...]:
        """Return the phases in order; a single one where the recipe gives none."""
        return self.phases or (Phase(share=1.0, losses=self.losses, hard_label=self.hard_label),)


class LightDistill(Distill):
    """The training of a student without attention, on outputs alone."""

    purpose: ClassVar = "light"
    losses: Losses = OUTPUT_LOSSES
    precision: Literal["fp32"] = "fp32"
    """Nothing is gained in bf16: it consists of lookups."""


class SharedDistill(Distill):
    """The training of a student that contains smaller ones, on the outputs of several of them at once."""

    losses: Losses = OUTPUT_LOSSES
    between: Natural = 2
    """Parts that each update trains besides the largest and the smallest."""

    @property
    def passes(self) -> float:
        """As many as the parts of an update are together, of which the smallest takes next to nothing."""
        return 1.0 + MEAN_PART * self.between


class Recover(Distill):
    """The distillation that follows pruning."""

    purpose: ClassVar = "recover"
    losses: Losses = RECOVER_LOSSES


class QuantizationAware(Distill):
    """Training in which the model computes as in INT8 and learns from its own unquantized weights."""

    purpose: ClassVar = "quantization-aware"
    losses: Losses = RECOVER_LOSSES

    @model_validator(mode="after")
    def _check_own_teacher(self) -> QuantizationAware:
        others = [
            key for key, given in (("teachers", self.teachers), ("layer_map", self.layer_map != "uniform")) if given
        ]
        if others:
            raise ValueError(
                f"{', '.join(others)}: the model learns from itself, unquantized, layer by layer; leave it out"
            )
        return self
