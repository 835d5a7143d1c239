"""The cost of trainings from shapes and text lengths, before they run: operations, memory and disk. Coarse estimates.

Time is operations at the throughput of earlier trainings on this machine. Operations are those of forward passes, and
twice that for the student's backward passes; a teacher whose outputs are cached runs in the first epoch alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from compress.data.encode import encode_rows, training_examples
from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED, unlabelled_info
from compress.data.tokenizer import TextTokenizer
from compress.errors import CompressError, DataError, ModelError
from compress.losses import LOSSES, LayerLoss, OutputLoss
from compress.measure.resources.flops import flops_per_token
from compress.model_info import PROBE_ROWS, ShapeInfo
from compress.model_shapes import pruned_shape, shape_of_folder, student_shape
from compress.model_sources import local_folder
from compress.pipeline.graph import Plan, PlannedModel
from compress.pipeline.step_store import StepRecord, StepStore
from compress.recipe.field_types import Role
from compress.recipe.training_schema import Distill, EpochBounds, Finetune, Student, Training, number
from compress.tasks import kind_of
from compress.train.core.auto_settings import TrainingFacts, resolve_auto

if TYPE_CHECKING:
    from compress.train.core.train_state import TrainResult

PREDICTED_ROLES: Mapping[str, tuple[Role, ...]] = {"score": ("select", "test"), "perturb": ("test",)}
"""By kind of step, the roles whose rows are predicted."""
SAMPLE = 500
"""Rows of train whose lengths represent all."""
WEIGHT = 4
"""Bytes of a weight, a gradient, and each of Adam's two moments."""
ACTIVATIONS = 34
"""Bytes that a layer stores for the backward pass, by hidden size and piece in 16 bits: Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", 2022 (arXiv:2205.05198), section 4.1, without attention maps."""
PROCESS = 500 * 2**20
"""Bytes of Python with torch and transformers loaded."""


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
        settings, shape, rows, lengths = self.settings(model), self.shape(model), self.rows(model), self._lengths
        if settings is None or shape is None or rows is None or lengths is None:
            return None
        teachers = teachers_run(settings, self.shape(self.plan.teacher))
        head, squares = kind_of(self.plan.recipe.task).head, float((lengths**2).mean())
        probe = probe_operations(settings, shape, head, rows, float(lengths.mean()), squares)
        return TrainingEstimate(
            operations=settings.restarts * training_operations(settings, shape, teachers, rows, lengths) + probe,
            memory=memory(settings, shape, teachers, int(lengths.max())),
            disk=disk(settings, shape, teachers, rows, float(lengths.mean())),
        )

    def settings(self, model: PlannedModel) -> Training | None:
        """Return the settings of a training without `auto`; None where it is not trained or its rows are not known."""
        if model.training is None or (facts := self._facts(model)) is None:
            return None
        return resolve_auto(model.training, facts)[0]

    def describe_bounds(self, model: PlannedModel) -> str | None:
        """Return `estimated with the most of 3.2 to 10 epochs`; None for trainings of a known length."""
        settings = self.settings(model)
        bounds = settings and settings.epochs
        return f"estimated with the most of {bounds.text}" if isinstance(bounds, EpochBounds) else None

    def _facts(self, model: PlannedModel) -> TrainingFacts | None:
        rows = self.rows(model)
        if rows is None or self._roles is None:
            return None
        problem = kind_of(self._roles.info.task_info).problem
        return TrainingFacts(rows, problem, has_select=self._roles.info.counts["select"] > 0)

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
    def train_rows(self) -> int | None:
        """The labelled rows of train; None until the data are prepared."""
        return self._roles.info.counts["train"] if self._roles else None

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


class Throughput(BaseModel):
    """How fast a training was, as stored in its step's record."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    seconds_per_operation: float
    trained: float
    """Seconds of all restarts, evaluations included; the rest of the step's time is loading and encoding."""
    probe_operations: float = 0.0
    """Operations of the probe, which took place before the training."""
    evaluating: float = 0.0
    """Seconds of the evaluations of one restart."""
    foretold: float | None = None
    """Seconds that the training itself forecast for its updates, from its first ones."""
    foretold_whole: float | None = None
    """The same with evaluations, once it had done one."""


def throughput_of(
    result: TrainResult, settings: Training, student: ShapeInfo, teachers: Sequence[ShapeInfo], train_rows: int
) -> Throughput | None:
    """Return the throughput of a training; None where the operations of its models are unknown."""
    share = _teacher_share(settings, result.rows, train_rows)
    operations = _operations(student, teachers, result.pieces, result.squares, share)
    if not operations or not result.seconds:
        return None
    complete = [logged for logged in result.forecasts if logged["whole"]]
    return Throughput(
        seconds_per_operation=result.seconds / operations,
        trained=result.seconds * settings.restarts,
        evaluating=result.evaluating,
        foretold=next((logged["seconds"] for logged in complete), None),
        foretold_whole=next((logged["seconds"] for logged in complete if logged["evaluations"]), None),
    )


def training_operations(
    settings: Training, student: ShapeInfo, teachers: Sequence[ShapeInfo], train_rows: int, lengths: NDArray[np.int64]
) -> float:
    """Return the operations of one training (of each restart) on rows of these lengths; 0 where they are unknown."""
    rows = _epochs(settings) * train_rows
    if settings.max_steps:
        rows = min(rows, settings.max_steps * number(settings.batch_size) * settings.accumulate)
    pieces, squares = float(lengths.mean()) * rows, float((lengths**2).mean()) * rows
    return _operations(student, teachers, pieces, squares, _teacher_share(settings, rows, train_rows))


def probe_operations(
    settings: Training, model: ShapeInfo, head: str, train_rows: int, pieces: float, squares: float
) -> float:
    """Return the operations of encoding rows for probes: one pass a restart, and one for the pooling not chosen.

    Args:
        settings: of the training; 0 is returned unless it starts from a probe.
        model: its shape.
        head: of the task's kind; an embedding has no layer that a probe could fit.
        train_rows: rows of train.
        pieces: mean length of a row in tokens.
        squares: mean square of that length.
    """
    if not isinstance(settings, Finetune) or settings.init != "probe" or head == "sentence-embedding":
        return 0.0
    compares_poolings = settings.pooling == "auto" and head == "sequence-classification"
    rows = min(train_rows, PROBE_ROWS) * (settings.restarts + compares_poolings)
    return _operations(model, (), pieces * rows, squares * rows, 0.0) / 3


def _epochs(settings: Training) -> float:
    """Return the most epochs that a training can have."""
    return settings.epochs.most if isinstance(settings.epochs, EpochBounds) else number(settings.epochs)


def teachers_run(settings: Training, teacher: ShapeInfo | None) -> tuple[ShapeInfo, ...]:
    """Return the shapes of the teachers that a training runs; further ones are assumed to be like the recipe's own."""
    names = settings.loss_names() if isinstance(settings, Distill) else set()
    if teacher is None or not any(isinstance(LOSSES[name], (OutputLoss, LayerLoss)) for name in names):
        return ()
    assert isinstance(settings, Distill)
    return (teacher,) * (1 + len(settings.teachers))


def _teacher_share(settings: Training, rows: float, train_rows: int) -> float:
    """Return the share of all rows for which the teacher runs: those of the first epoch where outputs are cached."""
    is_cached = isinstance(settings, Distill) and settings.cache
    return min(1.0, train_rows / rows) if is_cached and rows else 1.0


def _operations(
    student: ShapeInfo, teachers: Sequence[ShapeInfo], pieces: float, squares: float, teacher_share: float
) -> float:
    """Return the operations of three passes of the student and one of each teacher; 0 where they are unknown."""
    costs = [flops_per_token(shape) or (0, 0) for shape in (student, *teachers)]
    own, *others = (piece * pieces + pair * squares for piece, pair in costs)
    return 3 * own + sum(others) * teacher_share if own else 0.0


def memory(settings: Training, student: ShapeInfo, teachers: Sequence[ShapeInfo], longest: int) -> int:
    """Return the bytes of the training process while it trains on the longest batch."""
    weights = 4 * WEIGHT * student.parameters + WEIGHT * sum(shape.parameters for shape in teachers)
    pieces = number(settings.batch_size) * longest
    maps = 2 * WEIGHT * max(student.heads, default=1) * longest * pieces
    return PROCESS + weights + ACTIVATIONS * student.hidden * student.layers * pieces + maps


def disk(settings: Training, student: ShapeInfo, teachers: Sequence[ShapeInfo], rows: int, pieces: float) -> int:
    """Return the bytes on disk while it trains: checkpoints, the best weights, encoded rows, the teacher cache."""
    cache = 0
    if isinstance(settings, Distill) and settings.cache and teachers and _epochs(settings) > 1:
        losses = sum(isinstance(LOSSES[name], LayerLoss) for name in settings.loss_names())
        layers = 2 * losses * student.layers * teachers[0].hidden * pieces
        cache = min(settings.cache.limit, round(rows * (WEIGHT + layers)))
    return 9 * WEIGHT * student.parameters + round(3 * WEIGHT * rows * pieces) + cache
