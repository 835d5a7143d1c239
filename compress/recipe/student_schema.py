"""The recipe's student: a checkpoint of its own, or a shape that is made from the teacher."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from compress.recipe.field_types import Count, Number, OneOf, PathText, ShortForm, Width
from compress.recipe.sanity_limits import MAX_LAYERS
from compress.recipe.training_schema import Layer


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
