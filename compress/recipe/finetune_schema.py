"""The section `finetune`: how the teacher is trained on the task."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from compress.recipe.field_types import Flag, Frozen, Natural
from compress.recipe.training_schema import BatchSize, EpochCount, LearningRate, Training

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
