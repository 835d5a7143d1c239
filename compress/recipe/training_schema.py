"""The sections about training: what all trainings have in common, and `finetune`, how the teacher is trained."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, Strict, model_validator

from compress.recipe.field_types import Count, Flag, Frozen, Natural, Number, Positive, Share
from compress.recipe.sanity_limits import MAX_BATCH, MAX_LAYERS

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


class Updates(Frozen):
    """How the weights are updated: the same keys for every training, pretraining too."""

    minutes: Positive | None = None
    """End in time: the training takes about this long at most, evaluations included; the rate falls early."""
    accumulate: Natural = Field(1, le=MAX_BATCH)
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
    checkpoint: Checkpoints = Checkpoints()


class Training(Updates):
    """One training: the same keys for finetune, distill and the recovery after pruning.

    What is `auto` is chosen by the rules of `train.core.auto_settings`, from the rows of train and the model's width.
    """

    purpose: ClassVar[str] = "finetune"
    """Whose rules choose what is `auto`."""
    epochs: EpochCount | EpochBounds | Auto = AUTO
    """A number, or `{least: 3, most: 10}`: go on until select stops improving. `auto` chooses the bounds."""
    max_steps: Count | None = None
    batch_size: BatchSize | Auto = AUTO
    learning_rate: LearningRate | Auto = AUTO
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

    @model_validator(mode="after")
    def _check_frozen_layers(self) -> Self:
        if self.freeze is not None and self.unfreeze is not None:
            raise ValueError("freeze keeps layers as they are, and unfreeze trains them later: give one of them")
        return self

    @property
    def passes(self) -> float:
        """How many passes through the whole model an update takes for each row."""
        return 1.0

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


PAPER_GRID: Mapping[str, tuple[float, ...]] = {
    "batch_size": (16, 32),
    "learning_rate": (5e-5, 3e-5, 2e-5),
    "epochs": (2.0, 3.0, 4.0),
}
"""Of the BERT paper (Devlin et al., 2019, arXiv:1810.04805), appendix A.3."""


FEATURE_LAYERS = 4
"""How many layers `features: last4` reads."""


class Grid(Frozen):
    """Values to try: a training for each combination, and the best one on select is used. `grid: paper` is BERT's."""

    batch_size: Annotated[tuple[BatchSize, ...], Field(min_length=1)] | None = None
    learning_rate: Annotated[tuple[LearningRate, ...], Field(min_length=1)] | None = None
    epochs: Annotated[tuple[EpochCount, ...], Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value != "paper":
                raise ValueError(f"expected a section of keys or paper, got '{value[:60]}'")
            return dict(PAPER_GRID)
        return value

    @model_validator(mode="after")
    def _check_values(self) -> Grid:
        if not self.values:
            raise ValueError(f"give lists of values for one or more of {', '.join(type(self).model_fields)}")
        for name, values in self.values.items():
            if len(set(values)) < len(values):
                raise ValueError(f"{name} lists a value twice")
        return self

    @property
    def values(self) -> dict[str, tuple[float, ...]]:
        """The values to try, by key."""
        return {name: values for name, values in self if values is not None}

    @property
    def points(self) -> list[dict[str, float]]:
        """All combinations; the last key changes fastest."""
        values = self.values
        return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


class Finetune(Training):
    """Fine-tuning of the teacher. `reuse: false` trains even a teacher that already has a head for this task."""

    reuse: Flag = True
    method: Literal["full", "frozen"] = "full"
    """`frozen`: the encoder stays as it is. Texts are encoded once, and the last layer is fitted to that, as the probe
    is from which `full` starts; settings of the training loop have no effect then."""
    features: Literal["last4"] | None = None
    """`last4`: the encoder stays as it is, as with `method: frozen`, and the head reads the concatenated states of its
    last four layers (BERT's feature-based use)."""
    head: Literal["linear", "bilstm"] = "linear"
    """What reads these `features`: a linear layer that is fitted to them, or (token_classification) a BiLSTM of two
    layers that is trained on them, with a linear layer on top."""
    pooling: Literal["auto", "mean", "cls"] = "auto"
    """What a new head for whole texts reads: the mean of all tokens, or `cls`, the family's own head, which reads the
    first one. `auto`: as the teacher's card says; where it says nothing, the one whose probe has the lower loss in
    cross-validation (with `init: random`, the family's own)."""
    init: Literal["probe", "random"] = "probe"
    """What a new head starts as: the linear layer that fits the frozen encoder best, or random weights."""
    seeds: Natural = Field(1, le=1_000)
    """As `restarts`: trainings from different seeds, of which the best on select is used. But each is also scored on
    test, and the report states the mean and the spread; of restarts, test is predicted with the best one alone."""
    grid: Grid | None = None
    """Trainings with each combination of these values (each from all `seeds` or `restarts`)."""

    @model_validator(mode="after")
    def _check_one_count_of_seeds(self) -> Finetune:
        if self.seeds > 1 and self.restarts > 1:
            raise ValueError("seeds and restarts are the same trainings: give one of them")
        return self

    @property
    def is_frozen(self) -> bool:
        """Whether the encoder stays as it is."""
        return self.method == "frozen" or self.features is not None

    @property
    def is_fitted(self) -> bool:
        """Whether a last layer is fitted to all rows at once, without updates."""
        return self.is_frozen and self.head == "linear"

    @property
    def seed_count(self) -> int:
        """The number of seeds that are trained with."""
        return max(self.restarts, self.seeds)

    def points(self) -> list[Self]:
        """Return the settings of every point of the grid; these alone where there is none."""
        points = self.grid.points if self.grid else [{}]
        return [self.model_copy(update={**point, "grid": None}) for point in points]

    def single(self) -> Self:
        """Return these settings for one training, of the grid's first point."""
        return self.points()[0].model_copy(update={"restarts": 1, "seeds": 1})
