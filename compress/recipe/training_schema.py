"""The sections about training: what all have in common, the student, distillation, recovery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, SerializerFunctionWrapHandler, Strict, field_validator, model_serializer, model_validator

from compress.recipe.distill_sections import Augment, Cache, FurtherTeacher, Phase
from compress.recipe.field_types import (
    Count,
    Flag,
    Frozen,
    Natural,
    Number,
    OneOf,
    PathText,
    Positive,
    Share,
    ShortForm,
    Weight,
    Width,
    as_list,
    switched,
)
from compress.recipe.limits import MAX_BATCH, MAX_LAYERS
from compress.recipe.loss_schema import Attention, HiddenState, Losses, Ramp, SoftLabel, collect_losses

Layer = Annotated[int, Field(strict=True, ge=0, le=MAX_LAYERS)]
LayerPairs = Annotated[tuple[tuple[Layer, Layer], ...], Field(min_length=1)]


class Checkpoints(Frozen):
    """How often training saves its state for resuming; never part of a fingerprint."""

    minutes: Positive | None = 5.0
    steps: Count | None = None


AUTO: Literal["auto"] = "auto"
Auto = Literal["auto"]
EpochCount = Annotated[float, Strict(), Field(gt=0.0, le=10_000)]
BatchSize = Annotated[int, Strict(), Field(ge=1, le=MAX_BATCH)]
LearningRate = Annotated[float, Strict(), Field(gt=0.0, le=10.0)]
NumberType = TypeVar("NumberType", int, float)


def number(value: NumberType | Auto) -> NumberType:
    """Return a setting that is no longer `auto`."""
    if value == AUTO:
        raise ValueError("a setting is still auto: train.core.auto_settings.resolve_auto gives it a value")
    return value


class EpochBounds(Frozen):
    """Train until select stops improving, within these numbers of epochs."""

    least: EpochCount
    most: EpochCount

    @property
    def text(self) -> str:
        """`3.2 to 10 epochs`."""
        return f"{self.least:g} to {self.most:g} epochs" if self.least < self.most else f"{self.most:g} epochs"

    @model_validator(mode="after")
    def _check_order(self) -> EpochBounds:
        if self.least > self.most:
            raise ValueError(f"least ({self.least:g}) should not be larger than most ({self.most:g})")
        return self


class Training(Frozen):
    """One training: the same keys for finetune, distill and the recovery after pruning.

    What is `auto` is chosen by the rules of `train.core.auto_settings`, from the rows of train and the model's width.
    """

    epochs: EpochCount | EpochBounds | Auto = AUTO
    """A number, or `{least: 3, most: 10}`: go on until select stops improving. `auto` chooses the bounds."""
    minutes: Positive | None = None
    """End in time: the training takes about this long at most, evaluations included."""
    max_steps: Count | None = None
    batch_size: BatchSize | Auto = AUTO
    accumulate: Natural = Field(1, le=MAX_BATCH)
    learning_rate: LearningRate | Auto = AUTO
    warmup: Share = 0.1
    """Share of all steps (with bounds of epochs, of the fewest) in which the rate rises from zero."""
    decay: Literal["linear", "cosine", "constant"] = "linear"
    """How the rate falls after that: over all steps; with bounds of epochs it stays until select stops improving, and
    falls in a second half."""
    weight_decay: Number = Field(0.01, ge=0.0, le=10)
    clip: Positive | None = 1.0
    """Largest norm of the gradient."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto` uses bf16 where the device multiplies it faster; weights are fp32 in either case."""
    compile: Flag = False
    """On a GPU: torch.compile for the parts of layers that are not matrix products, with lengths padded to multiples
    of 32. An interrupted training then resumes, but not bit for bit. Ignored on a CPU."""
    evaluations: Natural = Field(1, le=10_000)
    """Evaluations on select in each epoch; the weights of the best one are used."""
    patience: Count | None = None
    """Stop after this many evaluations without improvement; with bounds of epochs, let the rate fall then."""
    restarts: Natural = Field(1, le=1_000)
    """Trainings from different seeds, of which the best on select is used."""
    freeze: Layer | Literal["embeddings"] | None = None
    """`embeddings`, or a number n: the embeddings and the n lowest layers are not trained."""
    unfreeze: Literal["gradual"] | EpochCount | None = None
    """`gradual`: the head is trained first, after an epoch the highest layer too, after each further epoch one layer
    more, at last the embeddings. A number: so many epochs between them. Evaluations before that do not count for
    `patience`."""
    layer_decay: Number = Field(1.0, gt=0.0, le=1.0)
    """Learning rate of each layer, as a factor of that of the layer above it."""
    class_weights: Literal["balanced"] | None = None
    """`balanced`: in the task's own loss (in distillation `hard_label`) all classes count alike, however many rows they
    have (classification, multi_label)."""
    checkpoint: Checkpoints = Checkpoints()

    @model_validator(mode="after")
    def _check_frozen_layers(self) -> Self:
        if self.freeze is not None and self.unfreeze is not None:
            raise ValueError("freeze keeps layers as they are, and unfreeze trains them later: give one of them")
        return self

    @property
    def seed_count(self) -> int:
        """The number of seeds that are trained with."""
        return self.restarts

    @property
    def trial_count(self) -> int:
        """The number of trainings, of which the best on select is used."""
        return self.seed_count * len(self.points())

    def points(self) -> list[Self]:
        """Return the settings of every training of one seed; only fine-tuning has several."""
        return [self]

    def single(self) -> Self:
        """Return these settings for one training."""
        return self.model_copy(update={"restarts": 1})


class VocabularyRule(OneOf):
    """Which word pieces stay, besides those that every text may need."""

    instead = "give one of keep: 8000 and min_count: 2"
    keep: Count | None = None
    """This many in total, the most frequent ones."""
    min_count: Count | None = None
    """Those that occur this often."""


Vocabulary = Literal["seen"] | VocabularyRule


class Student(ShortForm):
    """The smaller model: a card, a folder or hub id to start from, or a shape."""

    short_key = "source"
    """`student: half-depth`"""
    source: PathText | None = None
    revision: PathText | None = None
    layers: Number | Annotated[tuple[Layer, ...], Field(min_length=1)] | None = None
    """A number of layers, a share of the teacher's (0.5), or which of the teacher's layers to take ([1, 3, 5])."""
    choose: Literal["spread", "first", "last", "ends"] = "spread"
    """Which layers a number takes: evenly spread up to the last one, the lowest, the highest, or spread from the first
    to the last."""
    hidden: Width | None = None
    heads: Width | None = None
    ffn: Width | None = None
    embedding: Width | None = None
    """Width of a text's embedding (similarity, retrieval): by default the teacher's, in the same space."""
    factors: Width | None = None
    """Factorise word vectors into this many numbers a piece and one matrix: most of a small model is word vectors."""
    vocabulary: Vocabulary | None = None
    """A vocabulary of its own, a part of the teacher's, before it is distilled: the pieces of train and of unlabelled
    texts (`seen`), a number of them, or the frequent ones."""
    start: Literal["teacher", "slice", "svd", "random"] | None = None
    """Initial weights: copied from the teacher's layers (the default where the widths are equal); their most important
    parts (`slice`, the default where the student is narrower and its family allows it); the hidden size by principal
    directions instead (`svd`); or random (`random`, the default elsewhere)."""
    pooling: Literal["mean", "cls"] | None = None
    """What a new head on a checkpoint of its own reads, as in finetune; by default what its card says, else `cls`. A
    student that is made from its teacher has the teacher's head."""

    @field_validator("layers")
    @classmethod
    def _check_layers(cls, layers: float | tuple[int, ...] | None) -> float | tuple[int, ...] | None:
        if isinstance(layers, float) and not (0 < layers < 1 or (1 <= layers <= MAX_LAYERS and layers == int(layers))):
            raise ValueError(f"expected a number of layers up to {MAX_LAYERS} or a share below 1, got {layers:g}")
        return layers

    @model_validator(mode="after")
    def _check_shape(self) -> Student:
        shape = (self.source, self.layers, self.hidden, self.heads, self.ffn, self.factors, self.vocabulary)
        if all(value is None for value in shape):
            raise ValueError("name a student card or folder, or give its number of layers")
        has_number = self.source is not None if self.layers is None else not isinstance(self.layers, tuple)
        if self.choose != "spread" and not has_number:
            raise ValueError(f"choose: {self.choose} needs a number or a share of layers")
        return self


DEFAULT_LOSSES = Losses(soft_label=SoftLabel(), hidden_state=HiddenState(), attention=Attention())
RECOVER_LOSSES = Losses(soft_label=SoftLabel(), hidden_state=HiddenState())


BATCH_LOSSES = frozenset({"similarity", "contrast"})
"""The losses that compare the texts of a batch with each other."""


class Distill(Training):
    """Training of the student on the teacher's outputs and inner states."""

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
        if isinstance(self.epochs, EpochBounds) and self.losses_change:
            raise ValueError("epochs: phases, and weights from start to end, are shares of all updates: give a number")
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


class Recover(Distill):
    """The distillation that follows pruning."""

    losses: Losses = RECOVER_LOSSES


class QuantizationAware(Distill):
    """Training in which the model computes as in INT8 and learns from its own unquantized weights."""

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
