"""The distillation objective: the loss between student and teacher outputs and hidden states."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.batch_arrays import LABELLED, SOFT_LABELS
from compress.losses import LOSSES, BatchLoss, LayerLoss, OutputLoss, TaskLoss
from compress.losses.tensor_ops.row_groups import GroupedBatch, loss_on_subset
from compress.losses.tensor_ops.soft_targets import has_soft_labels, select_soft_targets
from compress.model_folder.model_info import TaskInfo
from compress.models.encoder_parts import Captured, capture_parts, layer_shapes, layers_of
from compress.recipe.distill_schema import BATCH_LOSSES, Distill
from compress.tasks import kind_of
from compress.train.distillation.layer_pairs import STUDENT, TEACHER, LayerPairs, Pair, Pairs, layer_map, uses_layer_map
from compress.train.distillation.phases import HARD_LABEL, loss_phases, phase_at
from compress.train.distillation.teachers import ModelOutputs, Teacher, TeacherCacheFactory
from compress.train.label_scale import LabelScale
from compress.train.objective import Batch, Losses, Objective, forward, with_label_weights


class BatchView(NamedTuple):
    """One batch with the outputs and captured layers of student and teacher."""

    batch: Batch
    outputs: ModelOutputs
    """Outputs of the student."""
    targets: ModelOutputs
    """Target outputs; empty where no loss needs them."""
    student: Captured
    teacher: Captured
    projected: Mapping[Pair, Tensor]
    """The student's hidden states projected to the teacher's width, where they differ."""


class DistillObjective(Objective):
    """Losses between a student and a teacher, which runs in eval mode, without gradients, on the same batch.

    Only losses with a non-zero weight in the current phase are computed, and only the layer parts they need are
    captured; a teacher that none of them needs does not run. Where hidden sizes differ, each pair of layers has one
    linear projection for all losses that compare it; it is trained with the student and discarded afterwards.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        teacher: PreTrainedModel | Teacher,
        settings: Distill,
        task: TaskInfo,
        seed: int = 0,
        *,
        pairs: Pairs | None = None,
        cache: TeacherCacheFactory | None = None,
        weights: Tensor | None = None,
        scale: LabelScale | None = None,
    ) -> None:
        """Create the objective.

        ``pairs`` (student layer, teacher layer) override the layer map of the settings; ``cache`` wraps the teacher so
        that its outputs are stored on disk; ``weights`` are those of `class_weights`, ``scale`` that of `label_scale`.
        """
        self.task, self.class_weights, self.scale = task, weights, scale
        self.kind = kind_of(task)
        self.teacher = Teacher([(teacher, 1.0)]) if isinstance(teacher, PreTrainedModel) else teacher
        self.phases = loss_phases(settings)
        self.losses: dict[str, OutputLoss | LayerLoss | BatchLoss | TaskLoss] = {
            **LOSSES,
            HARD_LABEL: self.kind.loss,
        }
        depths = len(layers_of(student)), len(layers_of(self.teacher.model))
        if pairs is None and uses_layer_map(self.phases):
            pairs = layer_map(settings.layer_map, *depths)
        self.layer_pairs = LayerPairs(self.phases, pairs or (), *depths)
        self._matches_heads = self.layer_pairs.have_unequal_heads(
            layer_shapes(student), layer_shapes(self.teacher.model)
        )
        self.projections = self._make_projections(student, seed)
        for model, side in ((student, STUDENT), (self.teacher.model, TEACHER)):
            with capture_parts(model, self.layer_pairs.all_parts(side)):
                pass  # parts that cannot be captured are refused now, not in a later phase
        self.layer_pairs.check_trainable(settings, bool(self.projections))
        if cache is not None:
            self.teacher = cache(self.teacher, self.layer_pairs.all_parts(TEACHER))
        self._set_weights(0.0)

    def modules(self) -> Sequence[nn.Module]:
        """Return the projections of all phases."""
        return list(self.projections.values())

    def identity(self) -> str:
        """Return a digest of the task and the teacher."""
        identity = f"{self.task.model_dump_json()} {self.teacher.identity()}"
        return hashlib.sha256(identity.encode()).hexdigest()

    def begin(self, progress: float, update: int = 0) -> None:
        """Set the loss weights, which change within phases and between them."""
        self.teacher.begin()
        self._set_weights(progress)

    def _set_weights(self, progress: float) -> None:
        self.phase = phase_at(self.phases, progress)
        self.weights = self.phases[self.phase].weights(progress)
        self.student_parts = self.layer_pairs.parts(self.phase, self.weights, STUDENT)
        self.teacher_parts = self.layer_pairs.parts(self.phase, self.weights, TEACHER)

    def is_selectable(self) -> bool:
        """Return True from the last phase on that trains the outputs, else in the last phase."""
        training_outputs = [number for number, phase in enumerate(self.phases) if phase.trains_outputs]
        return self.phase >= max(training_outputs, default=len(self.phases) - 1)

    def has_independent_rows(self) -> bool:
        """Return False with losses that compare the texts of a batch with each other, or match heads on it."""
        names = {name for phase in self.phases for name in phase.sections}
        return not self.kind.loss.compares_rows and not names & BATCH_LOSSES and not self._matches_heads

    def teachers(self) -> Sequence[PreTrainedModel]:
        """Return all teacher models."""
        return self.teacher.models

    def uncached(self) -> DistillObjective:
        """Return an objective whose teacher computes its outputs every time."""
        twin = copy.copy(self)
        twin.teacher = self.teacher.uncached()
        return twin

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Compute each loss by its recipe key, the task's loss as `hard_label`."""
        batch = GroupedBatch(with_label_weights(batch, self.class_weights))
        targets, teacher = self._teacher_outputs(batch)  # before the student, whose activations take memory
        with capture_parts(model, self.student_parts) as student:
            outputs = forward(model, batch)
        view = BatchView(batch, outputs, targets, student, teacher, self._projected(student))
        return {name: weight * self._loss(name, view) for name, weight in self.weights.items()}

    def _teacher_outputs(self, batch: Batch) -> tuple[ModelOutputs, Captured]:
        """Return target outputs and teacher layers; the teacher does not run if all rows have soft labels."""
        needs_outputs = any(isinstance(self.losses[name], OutputLoss) for name in self.weights)
        given = needs_outputs and SOFT_LABELS in batch
        outputs: ModelOutputs = {}
        layers: Captured = {}
        if self.teacher_parts or (needs_outputs and not (given and bool(has_soft_labels(batch).all()))):
            outputs, layers = self.teacher(batch, self.teacher_parts)
        return (select_soft_targets(outputs, batch, self.task.long, self.kind.outputs) if given else outputs), layers

    def _loss(self, name: str, view: BatchView) -> Tensor:
        loss = self.losses[name]
        if isinstance(loss, LayerLoss):
            return self._mean_over_pairs(name, loss, view)
        if isinstance(loss, (OutputLoss, TaskLoss)):
            return self.in_unit(self._loss_of_outputs(name, loss, view))
        return loss.function(view.outputs, view.batch, self.task.long)

    def _loss_of_outputs(self, name: str, loss: OutputLoss | TaskLoss, view: BatchView) -> Tensor:
        section = self.phases[self.phase].sections.get(name)
        if isinstance(loss, OutputLoss):
            return loss.function(view.outputs, view.targets, view.batch, self.task.long, self.kind.outputs, section)
        if name == HARD_LABEL and LABELLED in view.batch:
            return loss_on_subset(
                view.batch[LABELLED] > 0,
                view.outputs,
                view.batch,
                lambda outputs, batch: loss.function(outputs, batch, self.task.long),
            )
        return loss.function(view.outputs, view.batch, self.task.long)

    def _mean_over_pairs(self, name: str, loss: LayerLoss, view: BatchView) -> Tensor:
        """Return a layer loss averaged over its layer pairs, so that its weight does not depend on the depth."""
        section, losses = self.phases[self.phase].sections[name], []
        for pair in self.layer_pairs.pairs(self.phase, name):
            student = dict(view.student[pair[0]])
            if loss.projected and pair in view.projected:
                student["hidden"] = view.projected[pair]
            losses.append(loss.function(student, view.teacher[pair[1]], view.batch, section))
        return torch.stack(losses).mean()

    def _projected(self, student: Captured) -> dict[Pair, Tensor]:
        """Return the projected hidden states that current losses need, computed once for all of them."""
        pairs = self.layer_pairs.projected(self.phase, self.weights)
        return {
            pair: projection(student[pair[0]]["hidden"])
            for pair, projection in self.projections.items()
            if pair in pairs
        }

    def _make_projections(self, student: PreTrainedModel, seed: int) -> dict[Pair, nn.Linear]:
        widths = int(student.config.hidden_size), int(self.teacher.model.config.hidden_size)
        if widths[0] == widths[1]:
            return {}
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed the GPUs
            return {pair: nn.Linear(*widths, bias=False) for pair in self.layer_pairs.all_projected()}
