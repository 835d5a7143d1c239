"""The recipe: one frozen model a stage, unknown keys refused, every default in sight.

A recipe is written in short forms (``task: sst2``, ``quantize: int8``) and read into these long ones; ``compress plan``
prints them. Names that other parts own (task kinds, cards, formats, methods) are checked against the tables
that the caller passes as validation context, so that adding a method never edits this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from compress.file_names import FileName
from compress.recipe.field_types import (
    Count,
    Frozen,
    Header,
    Part,
    Share,
    ShortForm,
    listed,
    named,
    switched,
)
from compress.recipe.measure_schema import Measure, Target
from compress.recipe.training_schema import Distill, Finetune, Prune, Student
from compress.recipe.yaml_lines import KeyPath


class Data(Frozen):
    """Where rows come from: files (`train: FILE`), a hub set (`hub: nyu-mll/glue/sst2`) or a set made here."""

    hub: str | None = None
    """`owner/name` or `owner/name/configuration` of a hub data set; then train, select and test name its splits."""
    revision: str | None = None
    builtin: str | None = None
    """A set that is made from what is installed; `docstrings` is the quickstart's."""
    train: str | tuple[str, ...] | None = None
    select: str | tuple[str, ...] | None = None
    test: str | tuple[str, ...] | None = None
    corpus: str | tuple[str, ...] | None = None
    """Documents that are searched on test besides those that its rows name (retrieval)."""
    unlabelled: str | tuple[str, ...] | None = None
    """Texts without an answer, in the columns of train: a student learns what its teacher says of them. Fine-tuning
    never sees them, and label columns are not looked at."""
    format: Literal["csv", "tsv", "jsonl", "json", "conll", "parquet"] | None = None
    """By default the file's extension says (`.gz` aside)."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """What becomes of a row that does not fit the task: the run ends with its place, or it is left out and counted."""
    quoting: bool | None = None
    """Whether quotes enclose fields: by default yes in csv, no in tsv."""
    header: Header | Mapping[Part, Header] = True
    """False: the first row is data and columns are called 0, 1, 2 …; a list names the columns of a file without header,
    and may end in `...` where rows go on past the columns that matter. Roles whose files differ are told apart:
    `{test: [label, title, text]}`; those not named have a header."""
    encoding: str = "utf-8"
    select_share: Share = 0.05
    """How much of train is held back as select where none is given."""
    test_share: Share = 0.0
    """How much of train is held back as test where none is given."""
    limit: Count | None = None
    """Take at most so many rows of each role."""


class Task(ShortForm):
    """What the model answers: a named task (`sst2`), or a kind with its columns."""

    name: str = "task"
    kind: Annotated[str, named("task kinds")]
    data: Data
    text: Annotated[tuple[str, ...], listed] = Field(("text",), min_length=1)
    """The columns that are read: one text, the two of a pair, a question and its choices …"""
    label: str | tuple[str, ...] = "label"
    """The answer's column; for multi_label one column of lists, or several of 0 and 1."""
    labels: tuple[str, ...] | None = None
    """Names of the classes in order; a row may hold the name or its index. By default the sorted values of train."""
    first_label: int = Field(0, ge=0)
    """The number of the first of `labels` where rows hold numbers (AG News' own files count from 1)."""
    soft_labels: str | tuple[str, ...] | None = None
    """What somebody else answered already: a column of train with a probability for each class (a list in the order of
    `labels`, or by name), or a column for each class. A student follows these and not the teacher's; where train has no
    label column their most probable class is the label (multi_label: every class from one half on)."""
    aliases: Mapping[str, Annotated[tuple[str, ...], listed]] = {}
    """Other headers under which a column may stand (GLUE's files and its hub sets differ)."""
    metric: str | None = None
    """The primary metric; by default the kind's first."""
    slices: Annotated[tuple[str, ...], listed] = ()
    """Columns by whose values the scores are also told apart."""
    max_length: int = Field(128, ge=4)
    """Word pieces kept of each text, or of each window of it; the share of truncated rows is told."""
    long: Literal["cut", "mean", "max", "attention"] = "cut"
    """What becomes of longer texts: cut, or answered in windows whose answers are put together so."""
    overlap: int | None = Field(None, ge=0)
    """Pieces that neighbouring windows share: by default a third of `max_length`."""
    max_windows: Count = 16
    """Windows looked at of one text, at most; what lies behind them counts as truncated."""
    max_answer: Count = 30
    """Pieces of the longest answer (question answering)."""
    scheme: Literal["bio", "iob1"] = "bio"
    """How the files mark where entities begin (token classification)."""
    pooling: Literal["mean", "cls"] = "mean"
    """How a text's embedding is made of its pieces (similarity, retrieval)."""
    range: tuple[float, float] = (0.0, 1.0)
    """The labels of two texts that have nothing in common, and of two that mean the same (similarity)."""
    negatives: str | None = None
    """A column of texts that are no answer, for training (retrieval)."""
    hard_negatives: int = Field(0, ge=0)
    """For rows without such texts: so many answers of other rows that share most words with the question (BM25)."""

    @classmethod
    def short_key(cls) -> str:
        """`task: sst2`."""
        return "name"


class Teacher(ShortForm):
    """The model to learn from: a card, a local folder or a hub id (`owner/name@revision`)."""

    source: str
    revision: str | None = None

    @classmethod
    def short_key(cls) -> str:
        """`teacher: minilm-l6`."""
        return "source"


class Quantize(ShortForm):
    """INT8 variants and what they may lose against their own unquantized model."""

    method: Annotated[str, named("quantizers")] = "int8"
    max_drop: float = Field(0.005, ge=0.0)

    @classmethod
    def short_key(cls) -> str:
        """`quantize: int8`."""
        return "method"


class Gate(Frozen):
    """What the winner may lose against the teacher, absolute and in the primary metric (0.01 is one point)."""

    max_drop: float = Field(0.01, ge=0.0)
    strict: bool = False
    """Ask the whole 95 % interval of the difference to pass, not the point estimate alone."""
    max_class_drop: float | None = Field(None, ge=0.0)
    """Also the most that the recall of any class with 50 rows or more may lose."""


class Publish(ShortForm):
    """The zoo that winners go to: a local folder."""

    to: str
    name: FileName | None = None
    """By default the recipe's name."""

    @classmethod
    def short_key(cls) -> str:
        """`publish: zoo/`."""
        return "to"


class Recipe(Frozen):
    """The whole pipeline. Every part but task and teacher can be left out."""

    version: Literal[1] = 1
    name: FileName = "run"
    seed: int = Field(0, ge=0, lt=2**31)
    task: Task
    teacher: Teacher
    finetune: Annotated[Finetune | Literal[False], switched] = Finetune()
    student: Student | None = None
    distill: Annotated[Distill | Literal[False], switched] = Distill()
    prune: Prune | None = None
    quantize: Quantize | None = None
    export: Annotated[tuple[Annotated[str, named("formats")], ...], listed] = ("onnx",)
    variants: Annotated[tuple[Annotated[str, named("variants")], ...], listed] = ()
    """Variants that compete besides those that the devices, `export` and `quantize` bring: `torch-compiled`."""
    gate: Gate = Gate()
    targets: Annotated[tuple[Target, ...], listed] = Field((Target(device="cpu"),), min_length=1)
    rank_by: Literal["p50", "p95", "p99"] = "p50"
    measure: Measure = Measure()
    publish: Publish | None = None
    track: Annotated[str, named("trackers")] | None = None
    """An experiment tracker that Accelerate knows (`tensorboard`, `wandb`, `mlflow` …)."""

    @model_validator(mode="after")
    def _distinct_targets(self) -> Recipe:
        titles = [target.title for target in self.targets]
        twice = sorted({title for title in titles if titles.count(title) > 1})
        if twice:
            raise ValueError(f"targets: two are called {', '.join(twice)}; give them names")
        return self

    def distillations(self) -> Iterator[tuple[KeyPath, Distill]]:
        """Every training that follows another model, with its place here."""
        if self.student and self.distill:
            yield ("distill",), self.distill
        if self.prune and self.prune.recover:
            yield ("prune", "recover"), self.prune.recover
