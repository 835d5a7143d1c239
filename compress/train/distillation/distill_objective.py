"""The distillation objective: what a student loses against its teacher's answers and inner states."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.losses import LOSSES, TASK_LOSSES, BatchLoss, LayerLoss, OutputLoss
from compress.losses.tensor_ops.row_groups import GroupedBatch
from compress.losses.tensor_ops.row_subset import loss_on_subset
from compress.losses.tensor_ops.soft_targets import SOFT_LABELS_KEY, has_soft_labels, select_soft_targets
from compress.model_info import TaskInfo
from compress.models.encoder_parts import layers_of
from compress.models.forward_hooks import Captured, LayerParts, capture_parts
from compress.recipe.training_schema import Distill
from compress.tasks import kind_of
from compress.train.distillation.cross_encoder_scores import check_margin_loss
from compress.train.distillation.frozen_check import check_trainable_under_losses
from compress.train.distillation.layer_map import Pairs, layer_map
from compress.train.distillation.layer_pairs import STUDENT, TEACHER, LayerPairs, Pair, uses_layer_map
from compress.train.distillation.phases import HARD_LABEL, first_selectable_phase, loss_phases, phase_at
from compress.train.distillation.teachers import ModelOutputs, Teacher, TeacherCacheFactory, as_teacher
from compress.train.objective import Batch, Losses, forward

LABELLED = "labelled"
"""Of a batch: (examples,), one where the row's answer is a true one. Without it all are."""


class BatchView(NamedTuple):
    """One batch as student and teacher see it."""

    batch: Batch
    outputs: ModelOutputs
    """The student's."""
    wanted: ModelOutputs
    """What its answers should be; empty where no loss asks."""
    ours: Captured
    theirs: Captured
    projected: Mapping[Pair, Tensor]
    """The student's hidden states in the teacher's width, where they differ."""


class DistillObjective:
    """Losses of a student against a teacher, which runs in eval mode, without gradients, on the same batch.

    Only losses that weigh something at the time are computed, only what they need is observed, at their layers alone,
    and a teacher that none of them needs does not run. Where hidden sizes differ, each pair of layers gets a linear
    projection for all losses that compare it; it is trained with the student and dropped afterwards.
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
        keep: TeacherCacheFactory | None = None,
    ) -> None:
        """``pairs`` (student layer, teacher layer) come before the settings' layer map.

        ``keep`` has what the teacher says stay on disk.
        """
        check_margin_loss(settings, task)
        self.task = task
        self.problem = kind_of(task).problem
        self.teacher = as_teacher(teacher)
        self.stages = loss_phases(settings)
        self.losses: dict[str, OutputLoss | LayerLoss | BatchLoss] = {
            **LOSSES,
            HARD_LABEL: TASK_LOSSES[self.problem],
        }
        depths = len(layers_of(student)), len(layers_of(self.teacher.model))
        if uses_layer_map(self.stages):
            pairs = _some(layer_map(settings.layer_map, *depths) if pairs is None else pairs)
        self.comparisons = LayerPairs(self.stages, pairs or (), *depths)
        self.projections = self._make_projections(student, seed)
        _check_observable(student, self.comparisons.all_parts(STUDENT))
        _check_observable(self.teacher.model, self.comparisons.all_parts(TEACHER))
        check_trainable_under_losses(student, settings, self.stages, self.comparisons, self.projections)
        if keep is not None:
            self.teacher = keep(self.teacher, self.comparisons.all_parts(TEACHER))
        self._weigh(0.0)

    def modules(self) -> Sequence[nn.Module]:
        """The projections, those of all phases."""
        return list(self.projections.values())

    def identity(self) -> str:
        """The task, and who teaches."""
        told = f"{self.task.model_dump_json()} {self.teacher.identity()}"
        return hashlib.sha256(told.encode()).hexdigest()

    def begin(self, progress: float) -> None:
        """Weights move, and at a phase's beginning other losses count."""
        self.teacher.begin()
        self._weigh(progress)

    def _weigh(self, progress: float) -> None:
        self.stage = phase_at(self.stages, progress)
        self.weights = self.stages[self.stage].weights(progress)
        self.ours = self.comparisons.parts(self.stage, self.weights, STUDENT)
        self.theirs = self.comparisons.parts(self.stage, self.weights, TEACHER)

    def is_selectable(self) -> bool:
        """From the last phase on that teaches answers."""
        return self.stage >= first_selectable_phase(self.stages)

    def seconds_cached(self) -> float:
        """What the teacher took for words that stay on disk."""
        return self.teacher.seconds_cached()

    def teachers(self) -> Sequence[PreTrainedModel]:
        """All that may be asked."""
        return self.teacher.models()

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Each loss under its name in the recipe, the task's own as `hard_label`."""
        batch = GroupedBatch(batch)
        wanted, theirs = self._ask_teacher(batch)  # before the student, whose activations stay for the gradients
        with capture_parts(model, self.ours) as ours:
            outputs = forward(model, batch)
        moment = BatchView(batch, outputs, wanted, ours, theirs, self._projected(ours))
        return {name: weight * self._loss(name, moment) for name, weight in self.weights.items()}

    def _ask_teacher(self, batch: Batch) -> tuple[ModelOutputs, Captured]:
        """What the student's answers and layers are compared with; a teacher runs only for what rows do not tell."""
        follows = any(isinstance(self.losses[name], OutputLoss) for name in self.weights)
        told = follows and SOFT_LABELS_KEY in batch
        answers: tuple[ModelOutputs, Captured] = {}, {}
        if self.theirs or (follows and not (told and bool(has_soft_labels(batch).all()))):
            answers = self.teacher(batch, self.theirs)
        return (select_soft_targets(answers[0], batch, self.task, self.problem), answers[1]) if told else answers

    def _loss(self, name: str, moment: BatchView) -> Tensor:
        loss, section = self.losses[name], self.stages[self.stage].sections.get(name)
        if isinstance(loss, LayerLoss):
            return self._over_pairs(name, loss, moment)
        if isinstance(loss, OutputLoss):
            return loss.function(moment.outputs, moment.wanted, moment.batch, self.task, self.problem, section)
        if name == HARD_LABEL and LABELLED in moment.batch:
            true = moment.batch[LABELLED] > 0
            return loss_on_subset(
                true, moment.outputs, moment.batch, lambda ours, few: loss.function(ours, few, self.task)
            )
        return loss.function(moment.outputs, moment.batch, self.task)

    def _over_pairs(self, name: str, loss: LayerLoss, moment: BatchView) -> Tensor:
        """A layer loss averaged over the pairs it compares, so that its weight does not depend on the depth."""
        section, found = self.stages[self.stage].sections[name], []
        for pair in self.comparisons.pairs(self.stage, name):
            student = dict(moment.ours[pair[0]])
            if loss.projected and pair in moment.projected:
                student["hidden"] = moment.projected[pair]
            found.append(loss.function(student, moment.theirs[pair[1]], moment.batch, section))
        return torch.stack(found).mean()

    def _projected(self, ours: Captured) -> dict[Pair, Tensor]:
        """The student's hidden states as losses of now want them, made once for all of them."""
        wanted = self.comparisons.projected(self.stage, self.weights)
        every = self.projections.items()
        return {pair: projection(ours[pair[0]]["hidden"]) for pair, projection in every if pair in wanted}

    def _make_projections(self, student: PreTrainedModel, seed: int) -> dict[Pair, nn.Linear]:
        widths = int(student.config.hidden_size), int(self.teacher.model.config.hidden_size)
        if widths[0] == widths[1]:
            return {}
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would set those of GPUs for good
            return {pair: nn.Linear(*widths, bias=False) for pair in self.comparisons.all_projected()}


def _some(pairs: Pairs) -> Pairs:
    if not pairs:
        raise ModelError("layer_map is empty, so hidden states and attention have nothing to compare.")
    return pairs


def _check_observable(model: PreTrainedModel, wanted: LayerParts) -> None:
    """Meet what cannot be observed now and not in the first step of training."""
    with capture_parts(model, wanted):
        pass
