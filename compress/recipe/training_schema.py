"""The sections about training: what all have in common, the student, distillation, recovery."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import Field, Strict, model_validator

from compress.recipe.field_types import Count, Flag, Frozen, Natural, Number, Positive, Share
from compress.recipe.limits import MAX_BATCH, MAX_LAYERS

Layer = Annotated[int, Field(strict=True, ge=0, le=MAX_LAYERS)]


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

    purpose: ClassVar[str] = "finetune"
    """Whose rules choose what is `auto`."""
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
    """`auto` uses bf16 where this training is faster in it; the choice is kept for the machine. Weights are fp32 in
    either case."""
    compile: Flag = False
    """On a GPU: torch.compile for the parts of layers that are not matrix products, with lengths padded to multiples
    of 32. An interrupted training then resumes, but not bit for bit. Ignored on a CPU."""
    evaluations: Natural = Field(1, le=10_000)
    """Evaluations on select in each epoch; the weights of the last one within noise of the highest score (and not below
    that of the start) are used."""
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
