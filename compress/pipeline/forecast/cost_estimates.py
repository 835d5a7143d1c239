"""What the trainings of a plan will do, as far as shapes and lengths are known before they run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.data.encode import encode_rows, training_examples
from compress.data.splits.prepare_splits import DataInfo, Roles, load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED, unlabelled_info
from compress.data.tokenizer import TextTokenizer
from compress.errors import CompressError, ModelError
from compress.model_info import ShapeInfo
from compress.model_shapes import pruned_shape, shape_of_folder, student_shape
from compress.model_sources import local_folder
from compress.pipeline.forecast.throughput_history import Rates, seconds_of
from compress.pipeline.forecast.training_cost import Lengths, Workload, disk, memory, workload
from compress.pipeline.graph import Plan
from compress.pipeline.step_store import StepStore
from compress.recipe.training_schema import Distill, Student, Training

SAMPLE = 2_000
"""Rows of train whose lengths stand for all."""


@dataclass(frozen=True)
class Expected:
    """One training before it runs; all of it is an estimate."""

    work: Workload
    select_rows: int
    memory: int
    """Bytes of the process at its worst moment."""
    disk: int
    """Bytes while it runs."""
    left: int
    """Bytes of what it leaves."""
    encoding: float
    """Seconds in which all its texts become pieces."""

    def seconds(self, rates: Rates) -> float:
        """How long it will take at these rates."""
        return seconds_of(rates, self.work, self.select_rows)


class Estimates:
    """Reads what is there and counts; nothing is fetched and torch is not loaded."""

    def __init__(self, plan: Plan, store: StepStore, cards: Sequence[Path] = ()) -> None:
        self._plan, self._store, self._cards = plan, store, cards
        self._sampled, self._encoding = 0, 0.0

    def expected(self, kind: str) -> Expected | None:
        """A kind of step's training; None where it has none, or where too little is known."""
        settings = training_of(self._plan, kind)
        student, lengths = self.shapes.get(kind), self._lengths(kind)
        if not settings or student is None or lengths is None or self.info is None:
            return None
        teacher = self.shapes["finetune"]
        further = self._further(settings, teacher)
        work = workload(student, (teacher, *further) if teacher else (), settings, lengths)
        during, left = disk(work, settings, len(self.info.labels))
        rows = len(lengths.all) / self._units + self.info.counts["select"]
        encoding = self._encoding * rows
        return Expected(work, self.info.counts["select"], memory(work, settings), during, left, encoding)

    @property
    def info(self) -> DataInfo | None:
        """What the prepared data tell of themselves."""
        return self._roles.info if self._roles else None

    @cached_property
    def shapes(self) -> dict[str, ShapeInfo | None]:
        """By kind of step, the shape of the model that it makes."""
        recipe = self._plan.recipe
        teacher = shape_of_folder(self._made("finetune") or self._source)
        found = {"finetune": teacher, "distill": shape_of_folder(self._made("distill"))}
        if recipe.student and found["distill"] is None:
            found["distill"] = self._student_shape(teacher, recipe.student)
        if recipe.prune:
            parent = found["distill"] if recipe.student else teacher
            found["prune"] = shape_of_folder(self._made("prune")) or (parent and pruned_shape(parent, recipe.prune))
        return found

    def _student_shape(self, teacher: ShapeInfo | None, student: Student) -> ShapeInfo | None:
        """Return the student's shape; None where its origin is not on this machine or the student cannot be made."""
        folder = local_folder(student.source, student.revision, self._cards) if student.source else None
        origin = shape_of_folder(folder) if student.source else teacher
        try:
            return origin and student_shape(origin, student)
        except ModelError:
            return None

    @cached_property
    def _source(self) -> Path | None:
        teacher = self._plan.recipe.teacher
        return local_folder(teacher.source, teacher.revision, self._cards)

    def _further(self, settings: Training, teacher: ShapeInfo | None) -> list[ShapeInfo]:
        """Further teachers; of one that is not here nothing is known, so it is taken to be like the recipe's own."""
        others = settings.teachers if isinstance(settings, Distill) else ()
        found = [shape_of_folder(local_folder(each.source, each.revision, self._cards)) or teacher for each in others]
        return [each for each in found if each is not None]

    def _made(self, name: str) -> Path | None:
        """The folder of a model step, where one with these settings stands."""
        step = next((step for step in self._plan.steps if step.name == name), None)
        folder = self._store.folder(name, step.fingerprint) if step else None
        return folder if folder is not None and folder.is_dir() else None

    @cached_property
    def _roles(self) -> Roles | None:
        folder = self._made("data")
        try:
            return load_prepared(folder) if folder else None
        except CompressError:
            return None

    def rows(self, kind: str) -> int | None:
        """Those that a kind of step trains on: with those without an answer, and those made up, where it reads them.

        None where it does not train, and before what is counted has been read.
        """
        settings = training_of(self._plan, kind)
        augment, beside = (settings.augment, self._unlabelled) if isinstance(settings, Distill) else (None, 0)
        if self.info is None or beside is None or not settings:
            return None
        return self.info.counts["train"] * (1 + (augment.copies if augment else 0)) + beside

    @cached_property
    def _unlabelled(self) -> int | None:
        """Rows without an answer; None where they are not read yet."""
        if all(step.name != UNLABELLED for step in self._plan.steps):
            return 0
        folder = self._made(UNLABELLED)
        try:
            return unlabelled_info(folder).count if folder else None
        except CompressError:
            return None

    def _lengths(self, kind: str) -> Lengths | None:
        """Of the rows that a kind of step trains on."""
        rows = self.rows(kind)
        return None if rows is None or self._sample is None else Lengths(round(rows * self._units), self._sample)

    @property
    def _units(self) -> float:
        """Examples a row of train."""
        assert self._sample is not None
        return len(self._sample) / self._sampled

    @cached_property
    def _sample(self) -> NDArray[np.int64] | None:
        """Lengths of what train gives batches of, at even steps, in an order that says nothing."""
        folder = self._made("finetune") or self._source
        if self._roles is None or folder is None:
            return None
        rows, task = self._roles.rows("train"), self._roles.info.task_info
        places = np.unique(np.linspace(0, len(rows) - 1, min(SAMPLE, len(rows))).astype(int))
        began = time.perf_counter()
        try:
            encoded = encode_rows((rows[int(place)] for place in places), task, TextTokenizer.load(folder))
        except CompressError:
            return None
        lengths = training_examples(encoded, task).lengths
        self._sampled = len(places)
        self._encoding = (time.perf_counter() - began) / len(places)
        return np.random.default_rng(0).permutation(lengths)


def training_of(plan: Plan, kind: str) -> Training | None:
    """The training of a kind of step; None where it has none."""
    recipe = plan.recipe
    recover = recipe.prune.recover if recipe.prune else None
    found = {"finetune": recipe.finetune, "distill": recipe.distill if recipe.student else None, "prune": recover}
    return found.get(kind) or None
