"""The distillation objective: what a student loses against its teacher's answers and inner states."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.errors import ModelError, UsageError, nearest
from compress.folder import TaskInfo
from compress.losses import LOSSES, AnswerLoss, LayerLoss, Part
from compress.models.families import layers_of
from compress.models.observe import Seen, observe
from compress.recipe.training import Distill
from compress.tasks import kind_of
from compress.train.layer_map import layer_map
from compress.train.objective import Batch, Losses, forward


class Distillation:
    """Losses of a student against one teacher, which runs in eval mode, without gradients, on the same batch.

    Only what the chosen losses need is observed, at the mapped layers alone. Where hidden sizes differ, each pair of
    layers gets a linear projection, trained with the student and dropped afterwards.
    """

    def __init__(
        self, student: PreTrainedModel, teacher: PreTrainedModel, settings: Distill, task: TaskInfo, seed: int = 0
    ) -> None:
        kind = kind_of(task)
        self.teacher = teacher
        teacher.train(False)
        self.temperature = settings.temperature
        self.hard_label = settings.hard_label
        self.problem = kind.problem
        self.outputs = kind.compared
        self.answers, self.layers = _chosen(settings)
        self.pairs = layer_map(settings.layer_map, len(layers_of(student)), len(layers_of(teacher)))
        if self.layers and not self.pairs:
            raise ModelError("layer_map is empty, so hidden states and attention have nothing to compare.")
        if not (self.answers or self.layers or self.hard_label):
            raise UsageError(
                "every distillation loss weighs zero and so does hard_label: there is nothing to learn from."
            )
        self.parts: set[Part] = {part for _, loss in self.layers.values() for part in loss.needs}
        self.projections = self._make_projections(student, seed)
        self._check_observable(student)

    def modules(self) -> Sequence[nn.Module]:
        """The projections."""
        return list(self.projections.values())

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Each loss under its name in the recipe, the task's own as `hard_label`."""
        with observe(model, [ours for ours, _ in self._observed], self.parts) as ours:
            outputs = forward(model, batch, labels=self.hard_label > 0)
        losses: Losses = {"hard_label": self.hard_label * outputs.loss} if self.hard_label > 0 else {}
        if not (self.answers or self.layers):
            return losses
        wanted, theirs = self._ask_teacher(batch)
        for name, (weight, loss) in self.answers.items():
            compared = [
                loss.function(outputs[output], wanted[output], self.temperature, self.problem)
                for output in self.outputs
            ]
            losses[name] = weight * torch.stack(compared).mean()
        for name, (weight, layer_loss) in self.layers.items():
            losses[name] = weight * self._over_pairs(layer_loss, ours, theirs, batch["attention_mask"])
        return losses

    @property
    def _observed(self) -> tuple[tuple[int, int], ...]:
        return self.pairs if self.parts else ()

    def _ask_teacher(self, batch: Batch) -> tuple[dict[str, Tensor], Seen]:
        device = batch["input_ids"].device
        if self.teacher.device != device:
            nn.Module.to(self.teacher, device)
        with torch.no_grad(), observe(self.teacher, {theirs for _, theirs in self._observed}, self.parts) as seen:
            outputs = forward(self.teacher, batch, labels=False)
        return {name: outputs[name] for name in self.outputs}, seen

    def _over_pairs(self, loss: LayerLoss, ours: Seen, theirs: Seen, mask: Tensor) -> Tensor:
        """A layer loss averaged over the mapped pairs, so that its weight does not depend on the depth."""
        compared = []
        for pair in self.pairs:
            student = dict(ours[pair[0]])
            if pair in self.projections and "hidden" in loss.needs:
                student["hidden"] = self.projections[pair](student["hidden"])
            compared.append(loss.function(student, theirs[pair[1]], mask))
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


def _chosen(settings: Distill) -> tuple[dict[str, tuple[float, AnswerLoss]], dict[str, tuple[float, LayerLoss]]]:
    """The losses that weigh something, by what they compare."""
    answers: dict[str, tuple[float, AnswerLoss]] = {}
    layers: dict[str, tuple[float, LayerLoss]] = {}
    for name, weight in settings.losses.items():
        loss = LOSSES.get(name)
        if loss is None:
            raise UsageError(f"no distillation loss is called '{name}'{nearest(name, LOSSES)}.")
        if weight > 0 and isinstance(loss, AnswerLoss):
            answers[name] = (weight, loss)
        elif weight > 0 and isinstance(loss, LayerLoss):
            layers[name] = (weight, loss)
    return answers, layers
