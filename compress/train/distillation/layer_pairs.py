"""Which layers of both models the losses of a distillation compare, and so what must be seen of each."""

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
"""(student's layer, teacher's layer)."""

STUDENT, TEACHER = 0, 1
"""The sides of a pair."""


class LayerPairs:
    """The pairs of layers that each loss on layers compares, phase by phase."""

    def __init__(self, stages: Sequence[LossPhase], mapped: Pairs, student: int, teacher: int) -> None:
        """``mapped`` is the layer map, of models of these depths."""
        self._sections = [stage.sections for stage in stages]
        self._pairs = [
            {
                name: compared_layers(loss, section, mapped, student, teacher)
                for name, section in stage.sections.items()
                if (loss := _on_layers(name)) is not None
            }
            for stage in stages
        ]

    def pairs(self, stage: int, name: str) -> Pairs:
        """What one loss compares in a phase."""
        return self._pairs[stage][name]

    def parts(self, stage: int, names: Collection[str], side: int) -> LayerParts:
        """Layer -> parts that these losses need of the student or the teacher."""
        wanted: dict[int, set[Part]] = {}
        for name in names:
            if (loss := _on_layers(name)) is not None:
                parts = loss.parts(self._sections[stage][name])
                for pair in self.pairs(stage, name):
                    wanted.setdefault(pair[side], set()).update(parts)
        return wanted

    def all_parts(self, side: int) -> LayerParts:
        """Layer -> parts that any phase needs."""
        wanted: dict[int, set[Part]] = {}
        for stage, pairs in enumerate(self._pairs):
            for layer, parts in self.parts(stage, pairs, side).items():
                wanted.setdefault(layer, set()).update(parts)
        return wanted

    def projected(self, stage: int, names: Collection[str]) -> set[Pair]:
        """The pairs at which these losses want the student's hidden states in the teacher's width."""
        return {pair for name in names if needs_projection(name) for pair in self.pairs(stage, name)}

    def all_projected(self) -> list[Pair]:
        """Those of all phases, in order."""
        return sorted({pair for stage, pairs in enumerate(self._pairs) for pair in self.projected(stage, pairs)})


def check_local_batch_size(settings: Distill, processes: int) -> None:
    """Refuse losses that compare the texts of a batch where a process sees no two of them: they would all be zero."""
    alone, share = sorted(settings.loss_names() & BATCH_LOSSES), settings.batch_size // processes
    if alone and share < 2:
        raise UsageError(
            f"{', '.join(alone)}: compares the texts of a batch, each process those of its own share, and a batch of "
            f"{settings.batch_size} leaves {share} to some of {processes} processes.",
            hint=f"batch_size: {2 * processes} or more, or fewer processes",
        )


def uses_layer_map(stages: Sequence[LossPhase]) -> bool:
    """Whether any loss compares the layers that a layer map pairs."""
    losses = [_on_layers(name) for stage in stages for name in stage.sections]
    return any(loss is not None and loss.at == "mapped" for loss in losses)


def needs_projection(name: str) -> bool:
    """Whether a loss wants the student's hidden states in the teacher's width."""
    loss = _on_layers(name)
    return loss is not None and loss.projected


def _on_layers(name: str) -> LayerLoss | None:
    loss = LOSSES.get(name)
    return loss if isinstance(loss, LayerLoss) else None
