"""The cost of a plan's trainings before they run, from what is on this machine. Coarse estimates.

Time is operations at the throughput of earlier trainings on this machine.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.data.encode import encode_rows, training_examples
from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED, unlabelled_info
from compress.data.tokenizer import TextTokenizer
from compress.environment import describe
from compress.errors import CompressError, DataError, pluralize
from compress.model_folder.model_info import ShapeInfo, read_info
from compress.model_shapes import shape_of_folder
from compress.model_sources import local_folder
from compress.pipeline.forecast.raw_sample import RawSample
from compress.pipeline.graph import Plan
from compress.pipeline.step_store import StepRecord, StepStore
from compress.pipeline.steps.package_format import PACKAGE_FORMAT
from compress.recipe.field_types import Role
from compress.recipe.training_schema import EpochBounds, Training
from compress.steps import STEPS
from compress.steps.model_step import PlannedModel
from compress.tasks import kind_of
from compress.tasks.base import evenly_spaced
from compress.train.core.auto_settings import TrainingFacts, resolve_auto
from compress.train.training_costs import (
    EXPECTED_POSITION,
    copies_of_rows,
    disk,
    expected_length,
    finished_weights,
    memory,
    most_epochs,
    probe_operations,
    teachers_run,
    trained_rows,
    training_operations,
)

PREDICTED_ROLES: Mapping[str, tuple[Role, ...]] = {
    "fallback": ("select",),
    "score": ("select", "test"),
    "perturb": ("test",),
    PACKAGE_FORMAT: ("select", "test"),
}
"""By kind of step, the roles whose rows are predicted."""
SAMPLE = 500
"""Rows of train whose lengths represent all."""
ASSUMED_OUTPUTS = 2
"""Of the last layer, until the data are prepared."""


@dataclass(frozen=True)
class TrainingEstimate:
    """The estimated cost of a step's trainings: those from all seeds, with all points of a grid."""

    operations: float
    """As expected; 0 for families whose operations are unknown."""
    memory: int
    disk: int
    most_operations: float | None = None
    """With the most epochs; None where no training ends by itself."""


@dataclass(frozen=True)
class SampledLengths:
    """The lengths in tokens of what a batch is counted in: rows with all of their examples, or examples."""

    lengths: NDArray[np.int64]
    batched_per_row: float
    """1, or the examples of a row where a batch is counted in examples."""
    examples_per_batched: float
    """The examples of a row where a batch is counted in rows, or 1."""


@dataclass(frozen=True)
class Estimates:
    """Estimates from what is on this machine; nothing is downloaded and torch is not loaded."""

    plan: Plan
    store: StepStore
    cards: Sequence[Path] = ()
    raw: RawSample | None = None
    """Represents the rows where the data are not prepared yet; without it, nothing is known of them."""

    def training(self, model: PlannedModel) -> TrainingEstimate | None:
        """Return the cost of training a model; None where it is not trained, or too little is known."""
        facts, shape, sample = self._facts(model), self.shape(model), self._sample
        if model.training is None or facts is None or shape is None or sample is None:
            return None
        points = [resolve_auto(point, facts)[0] for point in model.training.points()]
        settings, rows, lengths = points[0], facts.rows, sample.lengths
        teacher = self.plan.model(model.teacher) if model.teacher else self.plan.teacher
        teachers = teachers_run(settings, self.shape(teacher))
        kind, mean, squares = kind_of(self.plan.recipe.task), float(lengths.mean()), float((lengths**2).mean())
        outputs = kind.output_count(self._roles.info.task_info) if self._roles else ASSUMED_OUTPUTS
        probe = probe_operations(settings, shape, kind.head, outputs, rows, mean, squares)
        position = self._position(model, facts)

        def operations(trainings: Sequence[Training]) -> float:
            training = sum(training_operations(point, shape, teachers, rows, lengths) for point in trainings)
            return (training + probe) * facts.examples_per_row

        expected = [expected_length(point, position) for point in points]
        return TrainingEstimate(
            operations=operations(expected),
            most_operations=operations(points) if expected != points else None,
            memory=max(memory(point, shape, teachers, int(lengths.max()), facts.examples_per_row) for point in points),
            disk=disk(settings, shape, teachers, round(rows * facts.examples_per_row), mean)
            + finished_weights(model.training, shape),
        )

    def settings(self, model: PlannedModel) -> Training | None:
        """Return the settings of one training without `auto`; None where there is none, or its rows are not known."""
        if model.training is None or (facts := self._facts(model)) is None:
            return None
        return resolve_auto(model.training.points()[0], facts)[0]

    def trained_rows(self, model: PlannedModel, limit: int | None = None) -> float | None:
        """Return how many rows its trainings read, with at most ``limit`` labelled ones; None while unknown."""
        facts = self._facts(model, limit)
        if model.training is None or facts is None:
            return None
        return sum(trained_rows(resolve_auto(point, facts)[0], facts.rows) for point in model.training.points())

    def describe_trainings(self, model: PlannedModel) -> str | None:
        """Return `18 trainings, 5.5 of 3.2 to 10 epochs expected`; None for one of a known length."""
        settings, count = self.settings(model), model.training.trial_count if model.training else 0
        parts = [pluralize(count, "training")] if count > 1 else []
        facts = self._facts(model)
        if settings and facts and isinstance(settings.epochs, EpochBounds):
            expected = most_epochs(expected_length(settings, self._position(model, facts)))
            parts.append(f"{round(expected, 1):g} of {settings.epochs.text} expected")
        return ", ".join(parts) or None

    def _position(self, model: PlannedModel, facts: TrainingFacts) -> float:
        """Return where earlier trainings of this kind ended between their least and most epochs, else what is usual."""
        kind = self.plan.step(model.step).kind
        ended = [self._ended(record, model, facts) for record in self._records if record.kind == kind]
        known = [position for position in ended if position is not None]
        return statistics.median(known) if known else EXPECTED_POSITION

    def _ended(self, record: StepRecord, model: PlannedModel, facts: TrainingFacts) -> float | None:
        """Return where an earlier training ended between its bounds; None where it had none, or is gone."""
        try:
            training = read_info(self.store.folder_of(record)).training
        except CompressError:
            return None
        ended = training.chosen.get("epochs") if training else None
        if model.training is None or training is None or ended is None or not ended.value:
            return None
        rows = round(training.rows / ended.value)  # those without labels included
        bounds = resolve_auto(model.training.points()[0], replace(facts, rows=rows))[0].epochs
        if not isinstance(bounds, EpochBounds) or bounds.least >= bounds.most:
            return None
        return (ended.value - bounds.least) / (bounds.most - bounds.least)

    @cached_property
    def _records(self) -> list[StepRecord]:
        machine = describe(self.store.root).fingerprint
        return [record for record in self.store.records() if record.machine == machine and record.rates]

    def _facts(self, model: PlannedModel, limit: int | None = None) -> TrainingFacts | None:
        """Return what `auto` depends on, as in training: where rows are batched in windows, these are the rows."""
        rows, sample, counts = self.rows(model, limit), self._sample, self.known_counts
        if rows is None or counts is None:
            return None
        return TrainingFacts(
            rows=round(rows * sample.batched_per_row) if sample else rows,
            problem=kind_of(self.plan.recipe.task).problem,
            examples_per_row=sample.examples_per_batched if sample else 1.0,
            has_select=counts["select"] > 0,
        )

    def rows(self, model: PlannedModel, limit: int | None = None) -> int | None:
        """Return the rows that a model is trained on, unlabelled and augmented ones included; None while unknown.

        With a ``limit``, at most so many of them are labelled rows of train, and at most so many are unlabelled.
        """
        if (counts := self.known_counts) is None:
            return None
        labelled = counts["train"]
        rows = labelled if limit is None else min(labelled, limit)
        if model.training:
            rows *= copies_of_rows(model.training)
        if model.training is None or UNLABELLED not in self.plan.step(model.step).needs:
            return rows
        if folder := self._folder(UNLABELLED):
            texts = unlabelled_info(folder).count
        elif self.raw:
            texts = self.raw.unlabelled
        else:
            return None
        return rows + (texts if limit is None else min(texts, limit))

    def shape(self, model: PlannedModel) -> ShapeInfo | None:
        """Return the shape of a model: read from its folder, or computed from its parent's and its settings."""
        if (known := shape_of_folder(self._folder(model.step))) or model.parent is None:
            return known or shape_of_folder(self._source) or (self.raw.shape if self.raw else None)
        origin = self.shape(self.plan.model(model.parent))
        return STEPS[model.section].shape(model.shape, origin, self.cards) if model.shape else origin

    def scaled(self, record: StepRecord) -> StepRecord:
        """Return the record of a step; of one that predicts, with the time that this plan's rows would have taken."""
        roles, data = PREDICTED_ROLES.get(record.kind), record.inputs.get("data")
        if roles is None or data is None:
            return record
        try:
            earlier = load_prepared(self.store.folder("data", data.fingerprint)).info.counts
        except DataError:  # removed since, or damaged
            return record
        limit = self.plan.recipe.task.data.limit
        limited = {role: min(count, limit or count) for role, count in earlier.items()}
        now = self._roles.info.counts if self._roles else limited
        share = sum(now[role] for role in roles) / sum(earlier[role] for role in roles)
        return record.model_copy(update={"seconds": record.seconds * share})

    @property
    def counts(self) -> Mapping[Role, int] | None:
        """The labelled rows of each role; None until the data are prepared."""
        return self._roles.info.counts if self._roles else None

    @property
    def lengths(self) -> NDArray[np.int64] | None:
        """The lengths in tokens of a sample of the rows of train; None while unknown."""
        return self._sample.lengths if self._sample else None

    @property
    def known_counts(self) -> Mapping[Role, int] | None:
        """The rows of each role, where nothing is prepared those of the raw files."""
        return self.counts or (self.raw.counts if self.raw else None)

    @property
    def _source(self) -> Path | None:
        teacher = self.plan.recipe.teacher
        return local_folder(teacher.source, teacher.revision, self.cards)

    def _folder(self, name: str) -> Path | None:
        """Return the folder of a step, where it is cached with these settings."""
        folder = self.store.folder(name, self.plan.step(name).fingerprint)
        return folder if folder.is_dir() else None

    @cached_property
    def _roles(self) -> PreparedData | None:
        folder = self._folder("data")
        return load_prepared(folder) if folder else None

    @cached_property
    def _sample(self) -> SampledLengths | None:
        """Lengths of a sample of the training rows; None where the data or the tokenizer are not here."""
        folder = self._folder(self.plan.teacher.step) or self._source
        if self._roles is None:
            return SampledLengths(self.raw.lengths, 1.0, self.raw.examples) if self.raw else None
        if folder is None:
            return None
        rows, task = self._roles.rows("train"), self._roles.info.task_info
        sample = evenly_spaced(rows, SAMPLE)
        try:
            encoded = encode_rows(sample, task, TextTokenizer.load(folder))
        except CompressError:
            return None
        examples = training_examples(encoded, task)
        if not len(examples.lengths):
            return None
        batched = len(examples.lengths)
        return SampledLengths(examples.lengths, batched / len(sample), len(examples.example_lengths) / batched)
