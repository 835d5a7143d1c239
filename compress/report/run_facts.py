"""Facts of a run that a report states beside its results: data, targets, steps, and how models were made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from compress.measure.result_base import ResultModel


class DataFacts(ResultModel):
    """The data that models were trained and scored on."""

    source: str
    """`glue/sst2`, or the names of the files."""
    digest: str
    rows: Mapping[str, int]
    """By role: train, select, test."""
    classes: Mapping[str, Mapping[str, int]] = {}
    """By role and label, the number of rows."""
    documents: int | None = None
    """Number of documents that are searched on test, for kinds that search: the more, the harder."""
    contradictory: Mapping[str, int] = {}
    """By role, the number of rows whose text another row, of any role, has with another label."""
    duplicates: int | None = None
    """Number of texts of test that are also in train."""
    skipped: int = 0
    """Number of rows that do not fit the task."""
    truncated: Mapping[str, float] = {}
    """By role, the share of rows that are truncated for the teacher; of train estimated on 10,000 rows.

    Includes the share of searched documents as `test's documents`.
    """
    split_seed: int | None = None
    """Of the rows that are held back from train, or that limits take; None in older reports."""
    examples_per_row: float | None = None
    """Mean number of examples (choices, candidates, windows) of a row of test."""


class TargetFacts(ResultModel):
    """A target of the recipe: where and how the model is used."""

    title: str
    device: str
    threads: int
    batch: int
    length: int | Literal["data"]
    price: float | None = None
    """What an hour costs; None where the recipe does not say."""
    present: bool = True
    reason: str | None = None
    """Why it is not present on the machine."""


class ServiceFacts(ResultModel):
    """A service whose answers are the labels of the data (`compress label`)."""

    model: str
    tested: bool
    """Whether test holds the answers that were held back: then scores are agreement with the service."""
    self_agreement: float | None = None
    """How often two of its answers to one text are equal; None where it was asked once."""
    cost_of_million: float | None = None
    """What a million texts cost; None where no prices were stated, or the service states no tokens."""


class StepCost(ResultModel):
    """One step of the run."""

    name: str
    fingerprint: str
    seconds: float | None
    """Its duration when it ran, in this run or an earlier one."""
    reused: bool = False
    status: Literal["ok", "failed", "skipped"] = "ok"
    reason: str | None = None


class Provenance(ResultModel):
    """How a model was made from another, in addition to the recipe."""

    start: str
    """`layers 1, 3, 5 of the teacher`."""
    augmented: int | None = None
    """Number of augmented copies of training rows; None if unknown."""
