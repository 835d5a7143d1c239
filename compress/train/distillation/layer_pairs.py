"""The layer pairs that distillation losses compare, and the parts to capture of each layer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from compress.errors import UsageError
from compress.losses import LOSSES, LayerLoss, Part
from compress.recipe.training_schema import BATCH_LOSSES, Distill
from compress.train.distillation.layer_map import Pairs, compared_layers
from compress.train.distillation.phases import LossPhase

if TYPE_CHECKING:
    from compress.models.forward_hooks import LayerParts

Pair = tuple[int, int]
"""(student layer, teacher layer)."""

STUDENT, TEACHER = 0, 1
"""Indices of a pair."""


class LayerPairs:
    """The layer pairs that each layer loss compares, by phase."""

    def __init__(self, phases: Sequence[LossPhase], mapped: Pairs, student: int, teacher: int) -> None:
        """``mapped`` is the layer map, ``student`` and ``teacher`` are the numbers of layers."""
        self._sections = [phase.sections for phase in phases]
        self._pairs = [
            {
                name: compared_layers(loss, section, mapped, student, teacher)
                for name, section in phase.sections.items()
                if (loss := _layer_loss(name)) is not None
            }
            for phase in phases
        ]

    def pairs(self, phase: int, name: str) -> Pairs:
        """Return the pairs that one loss compares in a phase."""
        return self._pairs[phase][name]

    def parts(self, phase: int, names: Collection[str], side: int) -> LayerParts:
        """Return layer -> parts that these losses need of the student or the teacher."""
        needed: dict[int, set[Part]] = {}
        for name in names:
            if (loss := _layer_loss(name)) is not None:
                parts = loss.parts(self._sections[phase][name])
                for pair in self.pairs(phase, name):
                    needed.setdefault(pair[side], set()).update(parts)
        return needed

    def all_parts(self, side: int) -> LayerParts:
        """Return layer -> parts that any phase needs."""
        needed: dict[int, set[Part]] = {}
        for phase, pairs in enumerate(self._pairs):
            for layer, parts in self.parts(phase, pairs, side).items():
                needed.setdefault(layer, set()).update(parts)
        return needed

    def projected(self, phase: int, names: Collection[str]) -> set[Pair]:
        """Return the pairs at which these losses need projected hidden states."""
        return {pair for name in names if needs_projection(name) for pair in self.pairs(phase, name)}

    def all_projected(self) -> list[Pair]:
        """Return the projected pairs of all phases, sorted."""
        return sorted({pair for phase, pairs in enumerate(self._pairs) for pair in self.projected(phase, pairs)})


def check_local_batch_size(settings: Distill, processes: int) -> None:
    """Refuse losses that compare the texts of a batch if a process has fewer than two: they would be zero."""
    alone, share = sorted(settings.loss_names() & BATCH_LOSSES), settings.batch_size // processes
    if alone and share < 2:
        raise UsageError(
            f"{', '.join(alone)}: compares the texts of a process's share of the batch, and a batch of "
            f"{settings.batch_size} gives some of {processes} processes only {share}.",
            hint=f"set batch_size to {2 * processes} or more, or use fewer processes",
        )


def uses_layer_map(phases: Sequence[LossPhase]) -> bool:
    """Return whether any loss uses the layer map."""
    losses = [_layer_loss(name) for phase in phases for name in phase.sections]
    return any(loss is not None and loss.at == "mapped" for loss in losses)


def needs_projection(name: str) -> bool:
    """Return whether a loss needs projected hidden states."""
    loss = _layer_loss(name)
    return loss is not None and loss.projected


def _layer_loss(name: str) -> LayerLoss | None:
    loss = LOSSES.get(name)
    return loss if isinstance(loss, LayerLoss) else None
