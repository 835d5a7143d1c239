"""The recipe schema: one frozen model a section, unknown keys refused, every default explicit.

A recipe is written in short forms (``task: sst2``, ``quantize: int8``) and parsed into these long ones; ``compress
plan`` prints them. Names owned by other packages (task kinds, cards, formats, methods) are checked against the tables
that the caller passes as validation context, so that adding a method never edits this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from compress.errors import nearest
from compress.recipe.field_types import (
    Count,
    Flag,
    Frozen,
    Header,
    Index,
    Length,
    Natural,
    Number,
    Part,
    PathText,
    RecipeFile,
    Share,
    ShortForm,
    Weight,
    as_list,
    name_in,
    switched,
)
from compress.recipe.finetune_schema import Finetune
from compress.recipe.limits import MAX_LENGTH
from compress.recipe.measure_schema import Measure, Target
from compress.recipe.prune_schema import Prune
from compress.recipe.training_schema import Distill, QuantizationAware, Student, Training
from compress.recipe.yaml_lines import KeyPath
from compress.storage.file_names import FileName

Files = PathText | tuple[PathText, ...]

NAMED_TASKS, KIND_DEFAULTS = "named tasks", "defaults of kinds"
"""Keys of the validation context: the keys of a recipe's task by the name of a task, and by its kind."""

SOURCES = ("hub", "revision", "builtin", "train", "select", "test", "corpus")
"""Keys of task.data that name sources of rows. They belong together: a recipe that gives one replaces them all."""


class Data(Frozen):
    """Where rows come from: files (`train: FILE`), a hub set (`hub: nyu-mll/glue/sst2`) or a set made here."""

    hub: PathText | None = None
    """`owner/name` or `owner/name/configuration` of a hub data set; then train, select and test name its splits."""
    revision: PathText | None = None
    builtin: str | None = None
    """A data set generated from installed packages; `docstrings` is the quickstart's."""
    train: Files | None = None
    select: Files | None = None
    test: Files | None = None
    corpus: Files | None = None
    """Documents searched on test in addition to those that its rows name (retrieval)."""
    unlabelled: Files | None = None
    """Texts without labels, in the columns of train: a student learns the teacher's outputs on them. Fine-tuning does
    not use them, and their label columns are not read."""
    format: Literal["csv", "tsv", "jsonl", "json", "conll", "parquet"] | None = None
    """By default that of the file's extension (ignoring `.gz`)."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """What to do with a row that does not fit the task: stop and name its line, or leave it out and count it."""
    quoting: Flag | None = None
    """Whether quotes enclose fields: by default yes in csv, no in tsv."""
    header: Header | Mapping[Part, Header] = True
    """False: the first row is data and columns are called 0, 1, 2 …; a list names the columns of a file without header,
    and may end in `...` where rows have further columns that are not used. Where the files of roles differ:
    `{test: [label, title, text]}`; those not named have a header."""
    encoding: str = "utf-8"
    select_share: Share | Literal["auto"] = "auto"
    """How much of train is held back as select where none is given. `auto`: as many rows as make gate.max_drop three
    standard errors where two models disagree on a tenth of them, from 5 % to 20 % of train."""
    test_share: Share = 0.0
    """How much of train is held back as test where none is given."""
    limit: Count | None = None
    """Use at most this many rows of each role."""
    labelled: Count | None = None
    """Use the labels of at most this many rows of train; the texts of its other rows are `unlabelled`."""

    @property
    def has_unlabelled(self) -> bool:
        """Whether there are texts without labels, in files of their own or the rest of train."""
        return bool(self.unlabelled) or self.labelled is not None

    @model_validator(mode="after")
    def _check_unlabelled(self) -> Data:
        if self.unlabelled and self.labelled is not None:
            raise ValueError("give either unlabelled (texts of their own) or labelled (the other rows of train)")
        return self

    @field_validator("train", "select", "test", "corpus", "unlabelled")
    @classmethod
    def _expand_variables(cls, files: Files | None, info: ValidationInfo) -> Files | None:
        """Expand environment variables and `~` in paths; the splits of a hub set are names."""
        if files is None or info.data.get("hub") is not None:
            return files
        given = [files] if isinstance(files, str) else files
        expanded = tuple(str(Path(os.path.expandvars(file)).expanduser()) for file in given)
        return expanded[0] if isinstance(files, str) else expanded


class Task(ShortForm):
    """What the model predicts: a named task (`sst2`), or a kind with its columns."""

    short_key = "name"
    """`task: sst2`"""
    name: str = "task"
    kind: Annotated[str, name_in("task kinds")]
    data: Data
    text: Annotated[tuple[str, ...], as_list] = Field(("text",), min_length=1)
    """The columns that are read: one text, the two of a pair, a question and its choices …"""
    label: str | tuple[str, ...] = "label"
    """The column of labels; for multi_label one column of lists, or several of 0 and 1."""
    labels: tuple[str, ...] | None = None
    """Names of the classes in order; a row may hold the name or its index. By default the sorted values of train."""
    first_label: Index = 0
    """The number of the first of `labels` where rows hold numbers (AG News' own files count from 1)."""
    soft_labels: str | tuple[str, ...] | None = None
    """Probabilities given by the data: a column of train with a probability for each class (a list in the order of
    `labels`, or by name), or a column for each class. A student learns these instead of the teacher's; where train has
    no label column their most probable class is the label (multi_label: every class of 0.5 or more)."""
    aliases: Mapping[str, Annotated[tuple[str, ...], as_list]] = {}
    """Other headers that a column may have (GLUE's files and its hub sets differ)."""
    metric: str | None = None
    """The primary metric; by default the kind's first."""
    slices: Annotated[tuple[str, ...], as_list] = ()
    """Columns whose values define subgroups that are also scored."""
    max_length: Length = Field(128, ge=4)
    """Word pieces of each text, or of each window of it; the report states the share of truncated rows."""
    long: Literal["cut", "mean", "max", "attention"] = "cut"
    """What to do with longer texts: cut them, or process them in windows whose outputs are combined in this way."""
    overlap: Annotated[int, Field(strict=True, ge=0, le=MAX_LENGTH)] | None = None
    """Pieces shared by neighbouring windows: by default a third of `max_length`."""
    max_windows: Natural = Field(16, le=MAX_LENGTH)
    """Most windows of one text; pieces after them count as truncated."""
    max_answer: Length = 30
    """Pieces of the longest answer (question answering)."""
    scheme: Literal["bio", "iob1"] = "bio"
    """How the files mark where entities begin (token classification)."""
    pooling: Literal["mean", "cls"] = "mean"
    """How a text's embedding is computed from its pieces (similarity, retrieval)."""
    range: tuple[Number, Number] = (0.0, 1.0)
    """The labels of two texts that have nothing in common, and of two that mean the same (similarity)."""
    negatives: str | None = None
    """A column of texts that do not answer the question, for training (retrieval)."""
    hard_negatives: Index = 0
    """For rows without such texts: this many answers of other rows, those nearest to the question by BM25."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, value: Any, info: ValidationInfo) -> Any:
        """Fill in the keys of a named task, and the defaults of its kind, below the recipe's own."""
        given = {"name": value} if isinstance(value, str) else value
        if not isinstance(given, Mapping):
            return value
        context, name = info.context or {}, given.get("name")
        tasks: Mapping[str, Mapping[str, Any]] = context.get(NAMED_TASKS, {})
        if str(name) in tasks:
            given = merged(tasks[str(name)], given)
        elif isinstance(name, str) and "kind" not in given:
            guess = nearest(name, tasks)
            raise ValueError(f"no task is called '{name[:60]}'{guess}; a task of your own needs kind and data")
        return {**context.get(KIND_DEFAULTS, {}).get(str(given.get("kind")), {}), **given}


def merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a recipe's keys into a named task; sources of data are replaced together, the rest by key."""
    result = {**base, **given}
    data = given.get("data")
    if isinstance(data, Mapping):
        own = any(data.get(key) is not None for key in SOURCES)
        below = {key: value for key, value in base["data"].items() if not (own and key in SOURCES)}
        result["data"] = {**below, **data}
    if isinstance(given.get("aliases"), Mapping):
        result["aliases"] = {**base.get("aliases", {}), **given["aliases"]}
    return result


class Teacher(ShortForm):
    """The model to learn from: a card, a local folder or a hub id (`owner/name@revision`)."""

    short_key = "source"
    """`teacher: minilm-l6`"""
    source: PathText
    revision: PathText | None = None


class Quantize(ShortForm):
    """INT8 variants, and the quality they may lose against their own unquantized model."""

    short_key = "methods"
    """`quantize: int8`"""
    methods: Annotated[tuple[Annotated[str, name_in("quantizers")], ...], as_list] = Field(("int8",), min_length=1)
    """How models are quantized: every model by the first method, the final one by all of them. `int8` means those
    that are worth trying."""
    max_drop: Weight = 0.005
    training: Annotated[QuantizationAware | Literal[False], switched] = False
    """Train the last model once more while it computes as in INT8; the model before it is its teacher."""

    @model_validator(mode="before")
    @classmethod
    def _read_former_name(cls, value: Any) -> Any:
        """Read `method`, as recipes of earlier versions name the only one there was."""
        if isinstance(value, Mapping) and "method" in value and "methods" not in value:
            return {("methods" if key == "method" else key): each for key, each in value.items()}
        return value


class Export(ShortForm):
    """A format, for all models or for winners only."""

    short_key = "format"
    """`export: [onnx, web]`"""
    format: Annotated[str, name_in("formats")]
    """`all`: every format that can be built here."""
    compete: Flag | None = None
    """Whether it is built for every model and competes on the targets; otherwise it is built for winners, after they
    are selected. By default what is usual for the format."""


class Gate(Frozen):
    """The quality the winner may lose against the teacher, absolute and in the primary metric (0.01 is one point).

    A loss within one standard error of what is allowed is undecided: such a variant wins only where none passes.
    """

    max_drop: Weight = 0.01
    strict: Flag = False
    """Require the whole 95 % interval of the difference to be within; nothing is undecided then."""
    max_class_drop: Weight | None = None
    """Also the largest loss of recall of any class with 50 rows or more."""


class Publish(ShortForm):
    """The zoo that winners go to: a local folder."""

    short_key = "to"
    """`publish: zoo/`"""
    to: PathText
    name: FileName | None = None
    """By default the recipe's name."""


class Recipe(RecipeFile):
    """A complete pipeline. Every section except task and teacher is optional."""

    minimum = "'task: sst2' and 'teacher: minilm-l6'"
    version: Literal[1] = 1
    name: FileName = "run"
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    task: Task
    teacher: Teacher
    finetune: Annotated[Finetune | Literal[False], switched] = Finetune()
    student: Student | None = None
    distill: Annotated[Distill | Literal[False], switched] = Distill()
    prune: Prune | None = None
    quantize: Quantize | None = None
    export: Annotated[tuple[Export, ...], as_list] = (Export(format="onnx"),)
    variants: Annotated[tuple[Annotated[str, name_in("variants")], ...], as_list] = ()
    """Variants that compete in addition to those of the devices, `export` and `quantize`: `torch-compiled`."""
    gate: Gate = Gate()
    targets: Annotated[tuple[Target, ...], as_list] = Field((Target(device="cpu"),), min_length=1)
    rank_by: Literal["p50", "p95", "p99"] = "p50"
    measure: Measure = Measure()
    publish: Publish | None = None
    service: PathText | None = None
    """The service.json of `compress label`: the report then compares with the service whose answers are learned."""
    track: Annotated[str, name_in("trackers")] | None = None
    """An experiment tracker supported by Accelerate (`tensorboard`, `wandb`, `mlflow` …)."""

    @model_validator(mode="after")
    def _check_distinct_targets(self) -> Recipe:
        titles = [target.title for target in self.targets]
        if len(set(titles)) < len(titles):
            raise ValueError(f"targets: two of {', '.join(titles)} are called the same; give them names")
        return self

    @field_validator("export")
    @classmethod
    def _check_distinct_formats(cls, export: tuple[Export, ...]) -> tuple[Export, ...]:
        formats = [each.format for each in export]
        if repeated := next((name for name in formats if formats.count(name) > 1), None):
            raise ValueError(f"{repeated} is named twice")
        return export

    def map_trainings(self, change: Callable[[Training], Training]) -> Recipe:
        """Return a copy in which ``change`` was applied to the settings of every training."""
        changes: dict[str, object] = {
            "finetune": self.finetune and change(self.finetune),
            "distill": self.distill and change(self.distill),
        }
        if self.prune and self.prune.recover:
            changes["prune"] = self.prune.model_copy(update={"recover": change(self.prune.recover)})
        if self.quantize and self.quantize.training:
            changes["quantize"] = self.quantize.model_copy(update={"training": change(self.quantize.training)})
        return self.model_copy(update=changes)

    def distillations(self) -> Iterator[tuple[KeyPath, Distill]]:
        """Yield every training that learns from another model, with its key path."""
        if self.student and self.distill:
            yield ("distill",), self.distill
        if self.prune and self.prune.removes_units and self.prune.recover:
            yield ("prune", "recover"), self.prune.recover
        if self.quantize and self.quantize.training:
            yield ("quantize", "training"), self.quantize.training
