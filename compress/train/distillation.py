"""The distillation objective: what a student loses against its teacher's answers and inner states."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.errors import ModelError, UsageError
from compress.folder import TaskInfo
from compress.losses import LOSSES, TASK_LOSSES, AnswerLoss, BatchLoss, LayerLoss, Part
from compress.models.families import layers_of
from compress.models.observe import Seen, observe
from compress.recipe.losses import Loss
from compress.recipe.training import Distill
from compress.tasks import kind_of
from compress.train.cross_scores import check_margins
from compress.train.layer_map import Pairs, layer_map
from compress.train.objective import Batch, Losses, forward


class Distillation:
    """Losses of a student against one teacher, which runs in eval mode, without gradients, on the same batch.

    Only what the chosen losses need is observed, at the mapped layers alone. Where hidden sizes differ, each pair of
    layers gets a linear projection, trained with the student and dropped afterwards.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        teacher: PreTrainedModel,
        settings: Distill,
        task: TaskInfo,
        seed: int = 0,
        *,
        pairs: Pairs | None = None,
    ) -> None:
        """``pairs`` (student layer, teacher layer) come before the settings' layer map."""
        self.task = task
        self.problem = kind_of(task).problem
        self.teacher = teacher
        teacher.train(False)
        chosen = chosen_losses(settings)
        self.settings = settings_of(settings)
        check_margins(settings, task)
        self.answers = {name: loss for name, loss in chosen.items() if isinstance(loss, AnswerLoss)}
        self.layers = {name: loss for name, loss in chosen.items() if isinstance(loss, LayerLoss)}
        self.given = {name: loss for name, loss in chosen.items() if isinstance(loss, BatchLoss)}
        if settings.hard_label > 0:
            self.given["hard_label"] = TASK_LOSSES[self.problem]
        self.weights = {
            **{name: each.weight_at(0.0) for name, each in self.settings.items()},
            "hard_label": settings.hard_label,
        }
        depths = len(layers_of(student)), len(layers_of(teacher))
        self.pairs = layer_map(settings.layer_map, *depths) if pairs is None else pairs
        if self.layers and not self.pairs:
            raise ModelError("layer_map is empty, so hidden states and attention have nothing to compare.")
        if not (self.answers or self.layers or self.given):
            raise UsageError(
                "every distillation loss weighs zero and so does hard_label: there is nothing to learn from."
            )
        self.parts: set[Part] = {part for loss in self.layers.values() for part in loss.needs}
        self.projections = self._make_projections(student, seed)
        self._check_observable(student)

    def modules(self) -> Sequence[nn.Module]:
        """The projections."""
        return list(self.projections.values())

    def identity(self) -> str:
        """The task, and the teacher by the weights of its last layer, which hardly any two share."""
        digest = hashlib.sha256(self.task.model_dump_json().encode())
        for tensor in layers_of(self.teacher)[-1].state_dict().values():
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def begin(self, progress: float) -> None:
        """Weights follow their phase."""

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Each loss under its name in the recipe, the task's own as `hard_label`."""
        with observe(model, [ours for ours, _ in self._observed], self.parts) as ours:
            outputs = forward(model, batch)
        losses: Losses = {name: loss.function(outputs, batch, self.task) for name, loss in self.given.items()}
        if self.answers or self.layers:
            losses |= self._after_teacher(outputs, ours, batch)
        return {name: self.weights[name] * loss for name, loss in losses.items()}

    @property
    def _observed(self) -> tuple[tuple[int, int], ...]:
        return self.pairs if self.parts else ()

    def _after_teacher(self, outputs: Mapping[str, Tensor], ours: Seen, batch: Batch) -> Losses:
        """The losses that compare the student with its teacher."""
        wanted, theirs = self._ask_teacher(batch)
        answers = {
            name: loss.function(outputs, wanted, batch, self.task, self.problem, self.settings[name])
            for name, loss in self.answers.items()
        }
        return answers | {name: self._over_pairs(name, loss, ours, theirs, batch) for name, loss in self.layers.items()}

    def _ask_teacher(self, batch: Batch) -> tuple[Mapping[str, Tensor], Seen]:
        device = batch["input_ids"].device
        if self.teacher.device != device:
            nn.Module.to(self.teacher, device)
        with torch.no_grad(), observe(self.teacher, {theirs for _, theirs in self._observed}, self.parts) as seen:
            return forward(self.teacher, batch), seen

    def _over_pairs(self, name: str, loss: LayerLoss, ours: Seen, theirs: Seen, batch: Batch) -> Tensor:
        """A layer loss averaged over the mapped pairs, so that its weight does not depend on the depth."""
        compared = []
        for pair in self.pairs:
            student = dict(ours[pair[0]])
            if pair in self.projections and "hidden" in loss.needs:
                student["hidden"] = self.projections[pair](student["hidden"])
            compared.append(loss.function(student, theirs[pair[1]], batch, self.settings[name]))
        return torch.stack(compared).mean()

    def _make_projections(self, student: PreTrainedModel, seed: int) -> dict[tuple[int, int], nn.Linear]:
        widths = int(student.config.hidden_size), int(self.teacher.config.hidden_size)
        if "hidden" not in self.parts or widths[0] == widths[1]:
            return {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return {pair: nn.Linear(*widths, bias=False) for pair in self.pairs}

    def _check_observable(self, student: PreTrainedModel) -> None:
        """Meet what cannot be observed now and not in the first step of training."""
        with observe(student, [ours for ours, _ in self._observed], self.parts):
            pass
        with observe(self.teacher, {theirs for _, theirs in self._observed}, self.parts):
            pass


def settings_of(settings: Distill) -> dict[str, Loss]:
    """The section of each loss that weighs something, with the distillation's temperature where it has none."""
    chosen = settings.losses.chosen()
    soft = settings.losses.soft_label
    if soft is not None and soft.temperature is None and "soft_label" in chosen:
        chosen["soft_label"] = soft.model_copy(update={"temperature": settings.temperature})
    return chosen


def chosen_losses(settings: Distill) -> dict[str, AnswerLoss | LayerLoss | BatchLoss]:
    """The losses that weigh something, by name."""
    return {name: LOSSES[name] for name in settings.losses.chosen()}
