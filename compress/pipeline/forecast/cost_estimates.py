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
from compress.pipeline.forecast.training_cost import disk, memory, runs_teacher, training_operations
from compress.pipeline.graph import Plan, PlannedModel
from compress.pipeline.step_store import StepStore
from compress.recipe.training_schema import Distill, Student

SAMPLE = 500
"""Rows of train whose lengths represent all."""


@dataclass(frozen=True)
class TrainingEstimate:
    """The estimated cost of one training, all restarts together."""

    operations: float
    memory: int
    disk: int


class Estimates:
    """Estimates from what is on this machine; nothing is downloaded and torch is not loaded."""

    def __init__(self, plan: Plan, store: StepStore, cards: Sequence[Path] = ()) -> None:
        self._plan, self._store, self._cards = plan, store, cards
        self._shapes: dict[str, ShapeInfo | None] = {}

    def training(self, model: PlannedModel) -> TrainingEstimate | None:
        """Return the cost of training a model; None where it is not trained, or too little is known."""
        settings, shape, rows = model.training, self.shape(model), self.rows(model)
        if settings is None or shape is None or rows is None or self._lengths is None:
            return None
        teachers = self._teachers(settings) if isinstance(settings, Distill) and runs_teacher(settings) else []
        operations = training_operations(settings, shape, teachers, rows, self._lengths)
        return TrainingEstimate(
            operations=settings.restarts * operations,
            memory=memory(settings, shape, teachers, int(self._lengths.max())),
            disk=disk(settings, shape, teachers, rows, float(self._lengths.mean())),
        )

    def rows(self, model: PlannedModel) -> int | None:
        """Return the rows that a model is trained on, unlabelled and augmented ones included; None while unknown."""
        settings = model.training
        if self._roles is None or settings is None:
            return None
        rows = self._roles.info.counts["train"]
        if isinstance(settings, Distill):
            unlabelled = self._unlabelled
            if unlabelled is None:
                return None
            rows = rows * (1 + (settings.augment.copies if settings.augment else 0)) + unlabelled
        return rows

    def shape(self, model: PlannedModel) -> ShapeInfo | None:
        """Return the shape of a model: read from its folder, or computed from its parent's and its settings."""
        if model.name not in self._shapes:
            self._shapes[model.name] = shape_of_folder(self._folder(model.step)) or self._planned_shape(model)
        return self._shapes[model.name]

    def _planned_shape(self, model: PlannedModel) -> ShapeInfo | None:
        if model.parent is None:
            return shape_of_folder(self._source)
        parent = self.shape(self._plan.model(model.parent))
        if isinstance(model.shape, Student):
            return self._student_shape(parent, model.shape)
        return parent if parent is None or model.shape is None else pruned_shape(parent, model.shape)

    def _student_shape(self, teacher: ShapeInfo | None, student: Student) -> ShapeInfo | None:
        """Return the student's shape; None where its origin is not on this machine or it cannot be built."""
        folder = local_folder(student.source, student.revision, self._cards) if student.source else None
        origin = shape_of_folder(folder) if student.source else teacher
        try:
            return origin and student_shape(origin, student)
        except ModelError:
            return None

    def _teachers(self, settings: Distill) -> list[ShapeInfo]:
        """Return the shapes of all teachers; one that is not on this machine is assumed to be like the recipe's own."""
        own = self.shape(self._plan.teacher)
        further = [
            shape_of_folder(local_folder(named.source, named.revision, self._cards)) or own
            for named in settings.teachers
        ]
        return [shape for shape in (own, *further) if shape is not None]

    @cached_property
    def _source(self) -> Path | None:
        teacher = self._plan.recipe.teacher
        return local_folder(teacher.source, teacher.revision, self._cards)

    def _folder(self, name: str) -> Path | None:
        """Return the folder of a step, where it is cached with these settings."""
        step = next((step for step in self._plan.steps if step.name == name), None)
        folder = self._store.folder(name, step.fingerprint) if step else None
        return folder if folder is not None and folder.is_dir() else None

    @cached_property
    def _roles(self) -> PreparedData | None:
        folder = self._folder("data")
        try:
            return load_prepared(folder) if folder else None
        except CompressError:
            return None

    @cached_property
    def _unlabelled(self) -> int | None:
        """The number of unlabelled texts; None where they are not read yet."""
        if all(step.name != UNLABELLED for step in self._plan.steps):
            return 0
        folder = self._folder(UNLABELLED)
        try:
            return unlabelled_info(folder).count if folder else None
        except CompressError:
            return None

    @cached_property
    def _lengths(self) -> NDArray[np.int64] | None:
        """Lengths in pieces of a sample of the training rows; None where the data or the tokenizer are not here."""
        folder = self._folder(self._plan.teacher.step) or self._source
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
