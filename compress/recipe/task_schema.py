"""The recipe's task: what the model predicts, and where its rows come from."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
    Share,
    ShortForm,
    as_list,
    name_in,
)
from compress.recipe.sanity_limits import MAX_LENGTH
from compress.storage.file_names import expanded_user

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
    """A data set generated from installed packages; `sentence_starts` is the quickstart's."""
    train: Files | None = None
    select: Files | None = None
    test: Files | None = None
    corpus: Files | None = None
    """Documents searched on test in addition to those that its rows name (retrieval)."""
    unlabelled: Files | None = None
    """Texts without labels, in the columns of train, or one a line (`texts.txt`, as `compress predict --file` reads
    it): a student learns the teacher's outputs on them. Fine-tuning does not use them, nor their label columns."""
    format: Literal["csv", "tsv", "jsonl", "json", "conll", "parquet", "txt"] | None = None
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
    """How much of train is held back as select where none is given. `auto`: as many rows as make one point three
    standard errors where two models disagree on a tenth of them, from 5 % to 20 % of train."""
    test_share: Share = 0.0
    """How much of train is held back as test where none is given."""
    split_seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    """Decides which rows are held back, and which `limit` and `labelled` take. The recipe's `seed` does not: runs with
    other seeds have the same rows of select and test."""
    group: str | None = None
    """A column (of documents, authors, patients …): rows with an equal value are of one role where roles are split off
    train; rows without one are alone. Questions about one text are of one role too, where there are texts enough."""
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
        expanded = tuple(str(expanded_user(os.path.expandvars(file))) for file in given)
        return expanded[0] if isinstance(files, str) else expanded


class Task(ShortForm):
    """What the model predicts: a named task (`sst2`), or a kind with its columns."""

    short_key = "name"
    """`task: sst2`"""
    name: str | None = None
    """Only a label, never that of the recipe or its file. Where it is that of a named task, the keys that are not given
    are that task's."""
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
    max_length: Annotated[Length, Field(ge=4)] = 128
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
