"""The layer map, the layer pairs that distillation losses compare, and the parts to capture of each layer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from compress.errors import ModelError, UsageError
from compress.losses import EMBEDDINGS, LayerLoss, LayerPart
from compress.model_shapes import choose_layers
from compress.recipe.distill_schema import BATCH_LOSSES, Distill
from compress.recipe.loss_schema import Loss, Relation
from compress.recipe.training_schema import AUTO
from compress.train.distillation.phases import LossPhase

if TYPE_CHECKING:
    from compress.models.encoder_parts import LayerParts

Pair = tuple[int, int]
"""(student layer, teacher layer)."""
Pairs = tuple[Pair, ...]

STUDENT, TEACHER = 0, 1
"""Indices of a pair."""


def layer_map(setting: str | Pairs, student: int, teacher: int) -> Pairs:
    """Return pairs (student layer, teacher layer), counted from 0, for models of these depths.

    `uniform` spreads the student's layers over the teacher's and pairs the last layers; `last` and `first` pair them
    with as many of the teacher's last or first layers. `measured` needs both models: see `cka_layer_map`.
    """
    if not isinstance(setting, str):
        for ours, theirs in setting:
            if not (0 <= ours < student and 0 <= theirs < teacher):
                raise UsageError(
                    f"layer_map: [{ours}, {theirs}] names a layer that does not exist; "
                    f"the student has layers 0 to {student - 1}, the teacher 0 to {teacher - 1}."
                )
        return setting
    if setting == "uniform" and student <= teacher:
        return tuple(enumerate(choose_layers(float(student), teacher)))
    if setting == "uniform":  # a deeper student: several of its layers are paired with one of the teacher's
        return tuple((layer, layer * teacher // student) for layer in range(student))
    if student > teacher:
        raise UsageError(
            f"layer_map: {setting} pairs each of the student's {student} layers with one of the teacher's {teacher}.",
            hint="use layer_map: uniform, or pairs [student, teacher]",
        )
    return tuple((layer, layer + (teacher - student if setting == "last" else 0)) for layer in range(student))


def remaining_pairs(pairs: Pairs, kept: Sequence[int]) -> Pairs:
    """Return the pairs of a model that was pruned, given those before and which of its layers are left.

    Raises:
        ModelError: none of them is.
    """
    numbers = {layer: number for number, layer in enumerate(kept)}
    remaining = tuple((numbers[ours], theirs) for ours, theirs in pairs if ours in numbers)
    if not remaining:
        raise ModelError(
            f"layer_map: pruning dropped all student layers that it names; layers {list(kept)} are left.",
            hint="leave out prune.recover.layer_map, or name a pair for every layer",
        )
    return remaining


class LayerPairs:
    """The layer pairs that each layer loss compares, by phase."""

    def __init__(self, phases: Sequence[LossPhase], mapped: Pairs, student: int, teacher: int) -> None:
        """``mapped`` is the layer map, ``student`` and ``teacher`` are the numbers of layers."""
        self._phases = phases
        self._pairs = [
            {
                name: _compared_layers(loss, phase.sections[name], mapped, student, teacher)
                for name, loss in phase.layer_losses.items()
            }
            for phase in phases
        ]

    def pairs(self, phase: int, name: str) -> Pairs:
        """Return the pairs that one loss compares in a phase."""
        return self._pairs[phase][name]

    def parts(self, phase: int, names: Collection[str], side: int) -> LayerParts:
        """Return layer -> parts that these losses need of the student or the teacher."""
        needed: dict[int, set[LayerPart]] = {}
        for name, loss in self._phases[phase].layer_losses.items():
            for pair in self.pairs(phase, name) if name in names else ():
                needed.setdefault(pair[side], set()).update(loss.parts(self._phases[phase].sections[name]))
        return needed

    def all_parts(self, side: int) -> LayerParts:
        """Return layer -> parts that any phase needs."""
        needed: dict[int, set[LayerPart]] = {}
        for phase, pairs in enumerate(self._pairs):
            for layer, parts in self.parts(phase, pairs, side).items():
                needed.setdefault(layer, set()).update(parts)
        return needed

    def projected(self, phase: int, names: Collection[str]) -> set[Pair]:
        """Return the pairs at which these losses need projected hidden states."""
        losses = self._phases[phase].layer_losses
        return {pair for name in names if name in losses and losses[name].projected for pair in self.pairs(phase, name)}

    def all_projected(self) -> list[Pair]:
        """Return the projected pairs of all phases, sorted."""
        return sorted({pair for phase, pairs in enumerate(self._pairs) for pair in self.projected(phase, pairs)})

    def have_unequal_heads(self, student: Sequence[tuple[int, int]], teacher: Sequence[tuple[int, int]]) -> bool:
        """Return whether a loss pairs the heads of layers with different numbers of them, given (heads, FFN width)."""
        return any(
            student[ours][0] != teacher[theirs][0]
            for number, phase in enumerate(self._phases)
            for name, loss in phase.layer_losses.items()
            for ours, theirs in (self.pairs(number, name) if loss.pairs_heads else ())
        )

    def check_trainable(self, settings: Distill, has_projections: bool) -> None:
        """Refuse a phase whose initial losses depend on frozen layers alone; projections are trained.

        With `unfreeze` all layers are frozen where the first phase begins.
        """
        if settings.freeze is None and settings.unfreeze is None:
            return
        frozen = settings.freeze if isinstance(settings.freeze, int) else 0
        key = "freeze" if settings.unfreeze is None else "unfreeze"
        for number, phase in enumerate(self._phases if settings.unfreeze is None else self._phases[:1]):
            names = phase.weights(phase.start)
            layers = self.parts(number, names, STUDENT)
            trains_outputs = not names.keys() <= phase.layer_losses.keys()
            projects = has_projections and self.projected(number, names)
            trains_layers = settings.unfreeze is None and layers and max(layers) >= frozen
            if not (trains_outputs or projects or trains_layers):
                where = f" in phase {number + 1}" if settings.phases else ""
                raise ModelError(
                    f"{key}: {getattr(settings, key)} leaves nothing to train{where}: "
                    f"everything that {' and '.join(names)} depends on is frozen.",
                    hint="freeze fewer layers, or use a loss on higher layers; soft_label depends on the whole model",
                )


def check_local_batch_size(settings: Distill, processes: int) -> None:
    """Refuse losses that compare the texts of a batch if a process has fewer than two: they would be zero."""
    if settings.batch_size == AUTO:  # checked once the rows are known
        return
    alone, share = sorted(settings.loss_names() & BATCH_LOSSES), settings.batch_size // processes
    if alone and share < 2:
        raise UsageError(
            f"{', '.join(alone)}: compares the texts of a process's share of the batch, and a batch of "
            f"{settings.batch_size} gives some of {processes} processes only {share}.",
            hint=f"set batch_size to {2 * processes} or more, or use fewer processes",
        )


def uses_layer_map(phases: Sequence[LossPhase]) -> bool:
    """Return whether any loss uses the layer map."""
    return any(loss.at == "mapped" for phase in phases for loss in phase.layer_losses.values())


def _compared_layers(loss: LayerLoss, section: Loss, mapped: Pairs, student: int, teacher: int) -> Pairs:
    """Return the pairs that one loss compares in models of these depths: mapped layers, last layers, or embeddings."""
    if loss.at == "embeddings":
        return ((EMBEDDINGS, EMBEDDINGS),)
    if loss.at == "mapped":
        return mapped
    target = section.layer if isinstance(section, Relation) and section.layer is not None else teacher - 1
    if target >= teacher:
        raise UsageError(f"relation.layer: {target} does not exist; the teacher has layers 0 to {teacher - 1}.")
    return ((student - 1, target),)
