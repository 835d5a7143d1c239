"""The recipe's students: a checkpoint, a shape that is made from the teacher, or a model without attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from compress.errors import UsageError
from compress.recipe.field_types import (
    Count,
    Frozen,
    Natural,
    Number,
    OneOf,
    PathText,
    Positive,
    ShortForm,
    Weight,
    Width,
    as_list,
)
from compress.recipe.sanity_limits import MAX_BUCKETS, MAX_LAYERS
from compress.recipe.training_schema import AUTO, Auto, BatchSize, EpochBounds, EpochCount, Layer, LearningRate


class VocabularyRule(OneOf):
    """Which word pieces stay, besides those that every text may need."""

    instead = "give one of keep: 8000 and min_count: 2"
    keep: Count | None = None
    """This many in total, the most frequent ones."""
    min_count: Count | None = None
    """Those that occur this often."""


Vocabulary = Literal["seen"] | VocabularyRule


def pieces_name(rule: Vocabulary) -> str:
    """`8000pieces`, `seen`, `seen2times`: a rule in the name of a model."""
    if rule == "seen":
        return "seen"
    return f"{rule.keep}pieces" if rule.keep else f"seen{rule.min_count}times"


def _number_of_layers(layers: float | tuple[int, ...] | None) -> float | tuple[int, ...] | None:
    if isinstance(layers, float) and not (0 < layers < 1 or (1 <= layers <= MAX_LAYERS and layers == int(layers))):
        raise ValueError(f"expected a number of layers up to {MAX_LAYERS} or a share below 1, got {layers:g}")
    return layers


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

    check_layers = field_validator("layers")(_number_of_layers)

    @model_validator(mode="after")
    def _check_shape(self) -> Student:
        shape = (self.source, self.layers, self.hidden, self.heads, self.ffn, self.factors, self.vocabulary)
        if all(value is None for value in shape):
            raise ValueError("name a student card or folder, or give its number of layers")
        has_number = self.source is not None if self.layers is None else not isinstance(self.layers, tuple)
        if self.choose != "spread" and not has_number:
            raise ValueError(f"choose: {self.choose} needs a number or a share of layers")
        return self


BUCKETS = 20_000
Start = Literal["pieces", "ngrams", "components", "frequencies"]


class LightStudent(Frozen):
    """A student without attention: a vector for each word piece, and for n-grams of pieces, and a small head.

    `static` reads their mean and maximum over the text; `conv` lets depthwise convolutions read them in order first.
    """

    kind: Literal["static", "conv"]
    hidden: Width = 64
    """Width of the vectors; of few rows wider ones learn no more."""
    factors: Width | None = None
    """Store vectors of this width, and one matrix that widens them to `hidden`."""
    ngrams: Natural = Field(1, le=5)
    """The longest n-grams of pieces that have vectors; 1 leaves them out. Of few texts most n-grams are seen once, and
    their hashed vectors cost points; the convolutions of `conv` read neighbours anyway."""
    buckets: Annotated[Natural, Field(ge=2, le=MAX_BUCKETS)] = BUCKETS
    """Vectors that all n-grams share, each the weighted sum of two of them."""
    head_width: Width = 128
    """Width of the hidden layer of the head."""
    convolutions: Annotated[int, Field(strict=True, ge=1, le=3)] | None = None
    """How many of them (`conv`; 1 unless given)."""
    vocabulary: Vocabulary | None = None
    """The pieces that keep a vector, as in a student of the teacher's layers; by default all: those that train lacks
    start as the teacher reads them."""
    embedding: Width | None = None
    """Width of a text's embedding (similarity, retrieval): by default the teacher's, in the same space."""
    start: Annotated[tuple[Start, ...], as_list] = ("pieces", "components", "frequencies")
    """What vectors start as, by the fine-tuned teacher: `pieces` are read by it one by one, frequent `ngrams` too where
    that is named; `components`: along its principal directions instead of random ones; `frequencies`: rare pieces count
    more. An empty list starts with random vectors."""
    epochs: EpochCount | EpochBounds | Auto = AUTO
    """As in `distill`, whose output losses are those of this training; its epochs cost little."""
    batch_size: BatchSize | Auto = AUTO
    learning_rate: LearningRate | Auto = AUTO

    @model_validator(mode="after")
    def _check_parts(self) -> LightStudent:
        if self.convolutions is not None and self.kind == "static":
            raise ValueError("static has no convolutions; kind: conv has")
        if self.factors is not None and self.factors >= self.hidden:
            raise ValueError(f"factors: {self.factors} should be less than hidden, {self.hidden}")
        if "pieces" not in self.start and self.start:
            raise ValueError(f"start: {', '.join(self.start)} has no effect without pieces; give pieces too, or []")
        if self.buckets != BUCKETS and self.ngrams == 1:
            raise ValueError("buckets has no effect without n-grams; give ngrams: 3 too")
        if "ngrams" in self.start and self.ngrams == 1:
            raise ValueError("start: ngrams has no effect without n-grams; give ngrams: 3 too")
        return self

    @property
    def depth(self) -> int:
        """How many convolutions it has."""
        return (self.convolutions or 1) if self.kind == "conv" else 0


class Part(Frozen):
    """A part of the shared student: some of its layers, and the first heads and neurons of each."""

    kind: Literal["part"] = "part"
    layers: Annotated[int, Field(strict=True, ge=1, le=MAX_LAYERS)]
    """Evenly spread up to the last one."""
    heads: Width
    ffn: Width
    factors: Width | None = None
    """As of other students; those of the shared student, unless given."""
    vocabulary: Vocabulary | None = None
    """The pieces that it keeps of the shared student's: all, unless given."""

    @property
    def name(self) -> str:
        """`part-3x6x768`, `part-3x6x768-128factors-8000pieces`: one part has one name, whatever is beside it."""
        vectors = [f"{self.factors}factors"] if self.factors else []
        vectors += [pieces_name(self.vocabulary)] if self.vocabulary else []
        return "-".join([f"part-{'x'.join(map(str, self.units))}", *vectors])

    @property
    def units(self) -> tuple[int, int, int]:
        """Layers, heads and neurons, which its word vectors do not change."""
        return self.layers, self.heads, self.ffn


HELD_OUT, MOST_HELD_OUT = 0.1, 1000
"""The share of train on which parts are compared, and the most rows of it: the shared training does not see them."""


def held_out_rows(train: int) -> int:
    """Return how many of so many rows of train parts are compared on."""
    return min(MOST_HELD_OUT, max(1, round(HELD_OUT * train)))


class Shared(Frozen):
    """A student that contains smaller ones: each update trains the largest, the smallest and some between them.

    Their weights are shared, so one training is that of all `part` students of the list; each is trained on from there.
    """

    source: PathText | None = None
    """A checkpoint that it begins as, as of other students; by default the teacher."""
    revision: PathText | None = None
    pooling: Literal["mean", "cls"] | None = None
    layers: Number | None = None
    """How many of the layers it has, or which share; by default all."""
    check_layers = field_validator("layers")(_number_of_layers)
    factors: Width | None = None
    """As of other students: word vectors of this many numbers and one matrix."""
    vocabulary: Vocabulary | None = None
    """The pieces that it keeps, and all its parts with it: all of the teacher's, unless given."""
    between: Natural = Field(2, le=16)
    """Parts that each update trains besides the largest and the smallest, drawn from a grid of layers, heads
    and neurons."""
    epochs: EpochCount = 4
    """Of the shared training; by its operations an epoch costs 1.6 of the largest part alone."""
    temperature: Positive | None = None
    """By default that of the distillation, as the weight of the true labels is."""
    hard_label: Weight | None = None
    batch_size: BatchSize | Auto = AUTO
    learning_rate: LearningRate | Auto = AUTO

    @model_validator(mode="after")
    def _check_source(self) -> Shared:
        for name in ("revision", "pooling"):
            if self.source is None and getattr(self, name) is not None:
                raise ValueError(f"{name} is of a checkpoint, and there is no source; without one it is the teacher")
        return self


AND_THEN = "-then-"
"""In the name of a cascade, between those of its models."""


class Cascade(Frozen):
    """Two models as one: the first answers the texts of which it is sure enough, the second the others."""

    first: str
    """A model of the run (`static`), or one of its files (`static/numpy-int8`)."""
    then: str

    @property
    def model(self) -> str:
        """The name of the model that both are together: `static-then-student`."""
        return f"{self.first}{AND_THEN}{self.then}".replace("/", "-")

    @model_validator(mode="after")
    def _check_different(self) -> Cascade:
        if self.first.partition("/")[0] == self.then.partition("/")[0]:
            raise ValueError(f"a cascade is of two models, and both are {self.then.partition('/')[0]}")
        return self


def one_transformer(students: tuple[AnyStudent, ...]) -> tuple[AnyStudent, ...]:
    """Return a recipe's students, of which one at most may be a transformer."""
    if sum(isinstance(each, Student) for each in students) > 1:
        raise UsageError(
            "student: two of the list are transformers, and pruning goes on from one.",
            hint="a recipe for each, which share the fine-tuned teacher; or parts of a shared student: {kind: part,"
            " layers: 3, heads: 6, ffn: 768}",
        )
    return students


def _kind_of_student(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return "transformer" if kind is None else "part" if kind == "part" else "light"


AnyStudent = Annotated[
    Annotated[Student, Tag("transformer")] | Annotated[LightStudent, Tag("light")] | Annotated[Part, Tag("part")],
    Discriminator(_kind_of_student),
]
"""One of a recipe's students; parts of the shared student, and those without attention, say which `kind` they are."""
