"""Sections of a distillation: phases, further teachers, the cache of teacher outputs, and augmented texts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from compress.recipe.field_types import Frozen, Natural, Number, PathText, Positive, ShortForm, Weight, size
from compress.recipe.loss_schema import Losses, collect_losses

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
