"""The schema of a pretraining recipe: texts in, an encoder that other recipes start from out."""

from __future__ import annotations

import os
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from compress.recipe.field_types import (
    PRETRAINING,
    Count,
    Flag,
    Frozen,
    Length,
    Natural,
    Number,
    PathText,
    Positive,
    RecipeFile,
    Share,
    ShortForm,
    Weight,
    Width,
    as_list,
    name_in,
)
from compress.recipe.sanity_limits import MAX_LAYERS
from compress.recipe.training_schema import BatchSize, LearningRate, Updates
from compress.storage.file_names import FileName, expanded_user


class Text(ShortForm):
    """Where the documents come from: files, or a split of a hub set. They are streamed, never held in memory."""

    short_key = "files"
    """`text: wiki.jsonl.gz`"""
    files: Annotated[tuple[PathText, ...] | None, as_list] = None
    """txt: one sentence or paragraph a line, an empty line between documents; a longer document than 100,000 characters
    counts as several. jsonl and parquet: a document a row. Each may be gzipped."""
    hub: PathText | None = None
    """`owner/name` or `owner/name/configuration` of a hub data set."""
    split: str = "train"
    """Of the hub set."""
    revision: PathText | None = None
    column: str = "text"
    """The column of texts in jsonl, parquet and hub sets; not used in txt."""
    format: Literal["txt", "jsonl", "parquet"] | None = None
    """By default that of the file's extension (ignoring `.gz`)."""
    encoding: str = "utf-8"
    limit: Count | None = None
    """Use at most this many documents."""
    held_out: Share = Field(0.02, gt=0.0)
    """The share of documents that are never trained on: one half of them chooses the best weights, by the other half
    these are reported."""

    @field_validator("files")
    @classmethod
    def _expand_variables(cls, files: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Expand environment variables and `~` in paths."""
        return files and tuple(str(expanded_user(os.path.expandvars(file))) for file in files)

    @model_validator(mode="after")
    def _check_source(self) -> Text:
        if bool(self.files) == bool(self.hub):
            raise ValueError("give either files or a hub set")
        return self


class Start(ShortForm):
    """The encoder that training goes on from: a card, a folder or a hub id."""

    short_key = "source"
    """`start: minilm-l6`"""
    source: PathText
    revision: PathText | None = None


HEAD_WIDTH = 64
"""Width of an attention head where the recipe gives no number of heads."""


class EncoderShape(Frozen):
    """A new BERT with random weights; in general distillation what is left out is the teacher's."""

    layers: Annotated[int, Field(strict=True, ge=1, le=MAX_LAYERS)]
    hidden: Width | None = None
    heads: Width | None = None
    """By default one for every 64 of `hidden`."""
    ffn: Width | None = None
    """By default 4 times `hidden`."""
    positions: Length | None = None
    """The longest input in pieces; by default `train.length`."""
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _check_heads(self) -> EncoderShape:
        if self.hidden and self.heads and self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) should be a multiple of heads ({self.heads})")
        return self

    @property
    def head_count(self) -> int:
        """The number of heads of a new model."""
        return self.heads or max(1, (self.hidden or 0) // HEAD_WIDTH)


class PretrainVocabulary(Frozen):
    """A new vocabulary, made from the texts; or pieces added to that of `start`."""

    kind: Literal["wordpiece", "bpe", "unigram"] = "wordpiece"
    size: Annotated[int, Field(strict=True, ge=100, le=1_000_000)] | None = None
    """Pieces in total, special ones included."""
    lowercase: Flag = True
    """Whether the new tokenizer ignores case and accents."""
    add: Count | None = None
    """With `start`: add up to this many frequent words of the texts as pieces of their own; each starts with the mean
    of the vectors of the pieces it was made of."""

    @model_validator(mode="after")
    def _check_one(self) -> PretrainVocabulary:
        if (self.size is None) == (self.add is None):
            raise ValueError("give size (a new vocabulary) or add (more pieces for that of start)")
        if self.add is not None and (self.kind, self.lowercase) != ("wordpiece", True):
            raise ValueError("kind and lowercase are of a new vocabulary; with add they are those of start")
        return self


class MaskedLM(Frozen):
    """Masked language modelling: of the chosen pieces 80 % are masked, 10 % replaced at random and 10 % kept."""

    share: Number = Field(0.15, gt=0.0, lt=1.0)
    """Of all pieces."""
    whole_words: Flag = False
    """Choose words and mask all pieces of each, instead of single pieces."""
    masks: Literal["dynamic", "static"] = "dynamic"
    """`dynamic`: other masks in every pass over the texts (RoBERTa); `static`: the same ones (BERT)."""


class ReplacedTokens(ShortForm):
    """ELECTRA: a small generator fills in masked pieces, and the model finds out which ones were replaced."""

    short_key = "generator"
    """`replaced_tokens: 0.25`"""
    generator: Number = Field(0.25, gt=0.0, le=1.0)
    """The generator's hidden size, heads and ffn as a share of the model's."""
    weight: Weight = 50.0
    """Of the model's loss beside the generator's."""


SOFT_TEMPERATURE = 2.0


class GeneralDistillation(Frozen):
    """A student without a task learns from any encoder, on the texts alone."""

    teacher: Start
    method: Literal["triple", "relations"] = "triple"
    """`triple`: soft labels of masked pieces, their true ones, and the direction of the last layer's vectors
    (DistilBERT); `relations`: the relations among queries, keys and values of the last layer (MiniLM)."""
    temperature: Positive = SOFT_TEMPERATURE
    """Of the soft labels (triple)."""

    @model_validator(mode="after")
    def _check_method(self) -> GeneralDistillation:
        if self.method == "relations" and self.temperature != SOFT_TEMPERATURE:
            raise ValueError("temperature: method: relations has no soft labels; leave it out")
        return self


class ShortSequences(Frozen):
    """The first part of the training, on shorter sequences, with a warm-up and decay of its own."""

    length: Annotated[Length, Field(ge=16)] = 64
    share: Number = Field(0.9, gt=0.0, lt=1.0)
    """Of all steps (and minutes)."""


class PretrainSteps(Updates):
    """How long, in what batches and at what rate is trained."""

    length: Annotated[Length, Field(ge=16)] = 128
    """Pieces of a sequence, special ones included."""
    short: ShortSequences | None = None
    batch_size: BatchSize = 64
    steps: Count = 10_000
    learning_rate: LearningRate = 5e-4
    warmup: Share = 0.05
    evaluations: Natural = Field(10, le=10_000)
    """Evaluations of the held-out loss during the training."""

    @model_validator(mode="after")
    def _check_short(self) -> PretrainSteps:
        if self.short and self.short.length >= self.length:
            raise ValueError(f"short.length ({self.short.length}) should be below length ({self.length})")
        return self


TEACHERS_OWN = ("positions", "dropout")
"""What a student has of its teacher, whatever its shape."""


class PretrainRecipe(RecipeFile):
    """A complete pretraining: from scratch (`shape` and `vocabulary`), or going on from `start`."""

    recipe_kind = PRETRAINING
    minimum: ClassVar = {"text": "FILE", "start": "minilm-l6"}

    version: Literal[1] = 1
    name: FileName = "encoder"
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    text: Text
    start: Start | None = None
    shape: EncoderShape | None = None
    vocabulary: PretrainVocabulary | None = None
    masked_lm: MaskedLM = MaskedLM()
    next_sentence: Flag = False
    """Next sentence prediction: half of the pairs follow each other, the others are from two documents."""
    replaced_tokens: ReplacedTokens | None = None
    distill: GeneralDistillation | None = None
    train: PretrainSteps = PretrainSteps()
    track: Annotated[str, name_in("trackers")] | None = None
    """An experiment tracker supported by Accelerate (`tensorboard`, `wandb`, `mlflow` …)."""

    @model_validator(mode="after")
    def _check_beginning(self) -> PretrainRecipe:
        if (self.start is None) == (self.shape is None):
            raise ValueError("give start (go on from an encoder) or shape (a new one with random weights)")
        if self.start and self.vocabulary and self.vocabulary.size:
            raise ValueError(
                "start has a vocabulary, whose pieces its vectors belong to, so no other can be asked for: give"
                " vocabulary.add for more pieces, or shape instead of start for a model of its own"
            )
        self._check_shape()
        if self.distill and self.vocabulary:
            raise ValueError("a student that is distilled has its teacher's vocabulary: leave vocabulary out")
        return self

    def _check_shape(self) -> None:
        """Refuse a new model without a vocabulary or a width, and a student's own of what it has of its teacher."""
        if self.shape is None:
            return
        if self.distill:
            usual = EncoderShape(layers=self.shape.layers)
            for key in TEACHERS_OWN:
                if getattr(self.shape, key) != getattr(usual, key):
                    raise ValueError(f"shape.{key}: a student that is distilled has its teacher's {key}: leave it out")
            return
        if self.vocabulary is None or self.vocabulary.size is None:
            raise ValueError("a new model needs a vocabulary: vocabulary: {kind: wordpiece, size: 8000}")
        hidden, heads = self.shape.hidden, self.shape.head_count
        if hidden is None:
            raise ValueError("shape.hidden is missing; a new BERT: shape: {layers: 4, hidden: 256}")
        if hidden % heads:
            raise ValueError(f"shape.hidden ({hidden}) is no multiple of {heads} heads; give shape.heads")

    @model_validator(mode="after")
    def _check_objective(self) -> PretrainRecipe:
        chosen = [name for name in ("replaced_tokens", "distill") if getattr(self, name) is not None]
        if len(chosen) > 1:
            raise ValueError("give replaced_tokens or distill, not both: each is a training of its own")
        if chosen and self.next_sentence:
            raise ValueError(f"next_sentence goes with masked_lm alone, not with {chosen[0]}")
        if self.distill and self.distill.method == "relations" and self.masked_lm != MaskedLM():
            raise ValueError("masked_lm: distill.method: relations reads whole texts and masks nothing; leave it out")
        return self

    @model_validator(mode="after")
    def _check_positions(self) -> PretrainRecipe:
        if self.shape and self.shape.positions is not None and self.shape.positions < self.train.length:
            raise ValueError(
                f"train.length ({self.train.length}) is longer than shape.positions ({self.shape.positions}) pieces"
            )
        return self
