"""How much a training will do, how much memory it holds and how much disk it fills: from shapes and lengths alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from compress.data.encode import bucketed_batches
from compress.environment import cuda_devices, describe_cpu
from compress.losses import LOSSES, LayerLoss, OutputLoss
from compress.measure.resources.flops import flops_per_token
from compress.measure.timing.step_time_fit import BatchLoad, total_load
from compress.model_info import ShapeInfo
from compress.recipe.loss_schema import Attention, Loss, Relation
from compress.recipe.training_schema import Distill, Training

WEIGHT = 4
"""Bytes of a weight, a gradient and each of Adam's two memories."""
LEARNING = 4 * WEIGHT
KEPT = 18.0, 4.0
"""Bytes in bf16 that a layer keeps of a piece for the way back, by hidden size and by FFN width: Korthikanti et al.,
"Reducing Activation Recomputation in Large Transformer Models", 2022 (arXiv:2205.05198), section 4.1, without the
attention maps, which fused attention does not keep."""
FP32_MAPS, FP32_PASSING = 3, 4
"""Attention maps that every layer keeps for the way back in fp32 on a CPU, and that one layer makes on it."""
BF16_MAPS = 2
"""Those that every layer keeps in bf16 on a CPU, where attention is plain products (`compress/train/attention.py`): the
map, and what dropout leaves of it."""
MAPS = 2**18
"""Numbers of attention maps that are held at once on a CPU, as in `compress/losses/maps.py`."""
PROCESS = 500 * 2**20
"""Bytes of Python with torch and transformers in it."""


@dataclass(frozen=True)
class Lengths:
    """How long the rows of a training are."""

    rows: int
    sample: NDArray[np.int64]
    """Pieces of some of them, in no order."""

    @property
    def all(self) -> NDArray[np.int64]:
        """As many lengths as there are rows: the sample, over and over."""
        return np.resize(self.sample, self.rows)


@dataclass(frozen=True)
class Workload:
    """One training as it is planned, from a single seed."""

    student: ShapeInfo
    teachers: tuple[ShapeInfo, ...]
    """Those that are asked."""
    first: BatchLoad
    """Of the updates in the first epoch."""
    later: BatchLoad
    updates: tuple[int, int]
    """In the first epoch, and in later ones."""
    per_epoch: int
    evaluations: int
    restarts: int
    longest: int
    batch: int
    lengths: NDArray[np.int64]
    phases: tuple[float, ...] = (1.0,)
    """Shares of all updates, each with losses of its own."""

    def parts(self) -> Iterator[tuple[float, float]]:
        """What each phase has of the first epoch's updates, and of later ones."""
        total, edge = sum(self.updates), self.updates[0]
        for share, end in zip(self.phases, accumulate(self.phases), strict=True):
            begins, ends = (end - share) * total, end * total
            first, later = max(0.0, min(ends, edge) - begins), max(0.0, ends - max(begins, edge))
            yield first / edge, later / (total - edge) if total > edge else 0.0

    def flops(self, load: BatchLoad) -> float:
        """Operations of updates: forwards and twice that backwards for the student, forwards for its teachers."""
        return 3 * operations(self.student, load) + sum(operations(each, load) for each in self.teachers)


def operations(shape: ShapeInfo, load: BatchLoad) -> float:
    """Operations of forward passes; 0 where they are not known."""
    piece, pair = flops_per_token(shape) or (0, 0)
    return float(piece) * load.pieces + float(pair) * load.squares


def workload(student: ShapeInfo, teachers: Sequence[ShapeInfo], settings: Training, lengths: Lengths) -> Workload:
    """What training ``student`` on rows of these lengths comes to; ``teachers`` only where some loss asks them."""
    every = lengths.all
    per_epoch = math.ceil(math.ceil(len(every) / settings.batch_size) / settings.accumulate)
    wanted = math.ceil(settings.epochs * per_epoch)
    total = min(wanted, settings.max_steps or wanted)
    first = min(total, per_epoch)
    epoch = total_load(every, bucketed_batches(every, settings.batch_size, 0, 0))
    return Workload(
        student=student,
        teachers=tuple(teachers) if asks(settings) else (),
        first=_part(epoch, first / per_epoch),
        later=_part(epoch, (total - first) / per_epoch),
        updates=(first, total - first),
        per_epoch=per_epoch,
        evaluations=math.ceil(total / per_epoch * min(settings.evaluations, per_epoch)),
        restarts=settings.restarts,
        longest=int(every.max()),
        batch=settings.batch_size,
        lengths=every,
        phases=tuple(phase.share for phase in settings.phases_or_default())
        if isinstance(settings, Distill)
        else (1.0,),
    )


def asks(settings: Training) -> bool:
    """Whether a training runs a teacher."""
    named = settings.loss_names() if isinstance(settings, Distill) else set()
    return any(isinstance(LOSSES[name], (OutputLoss, LayerLoss)) for name in named)


def memory(work: Workload, settings: Training) -> int:
    """Bytes that the training process holds at its worst moment, which is the longest batch."""
    pieces, full = work.batch * work.longest, in_fp32(settings)
    wide = 2.0 if full else 1.4  # norms, sums and the loss stay in fp32
    kept = sum(KEPT[0] * work.student.hidden + KEPT[1] * ffn for ffn in work.student.ffn) * pieces * wide
    if not cuda_devices():  # where attention is not fused
        kept += _attention(work.student.heads, full) * pieces * work.longest
    passing = sum(2 * WEIGHT * (each.hidden + max(each.ffn)) * pieces for each in work.teachers[:1])
    weights = LEARNING * work.student.parameters + WEIGHT * sum(each.parameters for each in work.teachers)
    return round(PROCESS + weights + kept + passing + _observed(work, settings) + _maps(work, settings))


def _attention(heads: Sequence[int], full: bool) -> int:
    """Bytes of attention maps for the way back, by pair of pieces."""
    if full:
        return WEIGHT * (FP32_MAPS * sum(heads) + FP32_PASSING * max(heads))
    return WEIGHT // 2 * BF16_MAPS * sum(heads)


def in_fp32(settings: Training) -> bool:
    """Whether a training runs in full precision here, as `train.precision` will choose."""
    return settings.precision == "fp32" or (
        settings.precision == "auto" and not describe_cpu().has_bf16 and not cuda_devices()
    )


def _observed(work: Workload, settings: Training) -> float:
    """What hooks hold of the teacher's mapped layers while a batch is compared."""
    return float(_looked_at(work, settings) * work.batch * work.longest)


def _maps(work: Workload, settings: Training) -> float:
    """A few attention maps at a time, and what stays of them: gradients of the student's queries, keys and values."""
    if not isinstance(settings, Distill) or not settings.loss_names() & {"attention", "relation"}:
        return 0.0
    phases = [phase.losses.chosen().values() for phase in settings.phases_or_default()]
    stay = max(sum(_compared(section, work.student.layers) for section in sections) for sections in phases)
    vector = _number(settings) * work.student.hidden
    return 4.0 * WEIGHT * max(MAPS, work.longest**2) + 2.0 * stay * vector * work.batch * work.longest


def _compared(section: Loss, layers: int) -> int:
    """How many times vectors are compared with vectors, map by map."""
    if isinstance(section, Relation):
        return len(section.pairs)
    return layers if isinstance(section, Attention) else 0


def _looked_at(work: Workload, settings: Training) -> int:
    """Bytes a piece that the losses of all phases look at in the teacher's layers; what several look at, once."""
    if not isinstance(settings, Distill) or not work.teachers:
        return 0
    found = {
        (loss.at, part)
        for phase in settings.phases_or_default()
        for name, section in phase.losses.chosen().items()
        if isinstance(loss := LOSSES[name], LayerLoss)
        for part in loss.parts(section)
    }
    found -= {("last", part) for at, part in found if at == "mapped"}  # maps end at the last layer, but for a few
    layers = sum(work.student.layers if at == "mapped" else 1 for at, _ in found)
    return layers * work.teachers[0].hidden * _number(settings)


def _number(settings: Training) -> int:
    """Bytes of a number that a layer hands on."""
    return WEIGHT if in_fp32(settings) else WEIGHT // 2


def disk(work: Workload, settings: Training, classes: int) -> tuple[int, int]:
    """Bytes while it trains (checkpoint, best weights, encoded rows, what the teacher said), and of the result."""
    weights = WEIGHT * work.student.parameters
    encoded = 3 * WEIGHT * int(work.lengths.sum())
    checkpoint = 2 * 3 * weights + 2 * weights  # the new one is whole before the old one goes
    return checkpoint + encoded + cached(work, settings, classes), weights + 2**20


def cached(work: Workload, settings: Training, classes: int) -> int:
    """Bytes of what the teacher said that stay on disk between epochs, within the recipe's budget."""
    if not isinstance(settings, Distill) or not settings.cache or not work.teachers or not work.updates[1]:
        return 0
    answers = WEIGHT * max(1, classes) * len(work.lengths)
    told = settings.cache.disk is not None or not cuda_devices()  # on a GPU layers are kept for a size that is told
    layers = _looked_at(work, settings) * int(work.lengths.sum()) if told else 0
    return min(answers + layers, settings.cache.limit) if answers <= settings.cache.limit else 0


def _part(load: BatchLoad, share: float) -> BatchLoad:
    return BatchLoad(round(load.pieces * share), round(load.squares * share))
