"""Estimates the cost of a plan's trainings before they run, from what exists: configs, cards and prepared data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.data.encode import encode_rows, training_examples
from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED, unlabelled_info
from compress.data.tokenizer import TextTokenizer
from compress.errors import CompressError, ModelError
from compress.model_info import ShapeInfo
from compress.model_shapes import pruned_shape, shape_of_folder, student_shape
from compress.model_sources import local_folder
from compress.pipeline.forecast.training_cost import disk, memory, teachers_run, training_operations
from compress.pipeline.graph import Plan, PlannedModel
from compress.pipeline.step_store import StepStore
from compress.recipe.training_schema import Distill, Student

SAMPLE = 500
"""Rows of train whose lengths represent all."""


@dataclass(frozen=True)
class TrainingEstimate:
    """The estimated cost of one training, all restarts together."""

    operations: float
    """0 for families whose operations are unknown."""
    memory: int
    disk: int


@dataclass(frozen=True)
class Estimates:
    """Estimates from what is on this machine; nothing is downloaded and torch is not loaded."""

    plan: Plan
    store: StepStore
    cards: Sequence[Path] = ()

    def training(self, model: PlannedModel) -> TrainingEstimate | None:
        """Return the cost of training a model; None where it is not trained, or too little is known."""
        settings, shape, rows, lengths = model.training, self.shape(model), self.rows(model), self._lengths
        if settings is None or shape is None or rows is None or lengths is None:
            return None
        teachers = teachers_run(settings, self.shape(self.plan.teacher))
        return TrainingEstimate(
            operations=settings.restarts * training_operations(settings, shape, teachers, rows, lengths),
            memory=memory(settings, shape, teachers, int(lengths.max())),
            disk=disk(settings, shape, teachers, rows, float(lengths.mean())),
        )

    def rows(self, model: PlannedModel) -> int | None:
        """Return the rows that a model is trained on, unlabelled and augmented ones included; None while unknown."""
        if self._roles is None:
            return None
        rows, settings = self._roles.info.counts["train"], model.training
        if isinstance(settings, Distill):
            rows *= 1 + (settings.augment.copies if settings.augment else 0)
            if any(step.name == UNLABELLED for step in self.plan.steps):
                folder = self._folder(UNLABELLED)
                return rows + unlabelled_info(folder).count if folder else None
        return rows

    def shape(self, model: PlannedModel) -> ShapeInfo | None:
        """Return the shape of a model: read from its folder, or computed from its parent's and its settings."""
        if (known := shape_of_folder(self._folder(model.step))) or model.parent is None:
            return known or shape_of_folder(self._source)
        origin = self.shape(self.plan.model(model.parent))
        if not isinstance(model.shape, Student):
            return pruned_shape(origin, model.shape) if origin and model.shape else origin
        if model.shape.source:
            origin = shape_of_folder(local_folder(model.shape.source, model.shape.revision, self.cards))
        try:
            return origin and student_shape(origin, model.shape)
        except ModelError:  # reported by the checks before a run
            return None

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
    def _lengths(self) -> NDArray[np.int64] | None:
        """Lengths in tokens of a sample of the training rows; None where the data or the tokenizer are not here."""
        folder = self._folder(self.plan.teacher.step) or self._source
        if self._roles is None or folder is None:
            return None
        rows, task = self._roles.rows("train"), self._roles.info.task_info
        sample = np.unique(np.linspace(0, len(rows) - 1, min(SAMPLE, len(rows))).astype(int))
        try:
            encoded = encode_rows((rows[int(index)] for index in sample), task, TextTokenizer.load(folder))
        except CompressError:
            return None
        lengths: NDArray[np.int64] = training_examples(encoded, task).lengths
        return lengths if len(lengths) else None
