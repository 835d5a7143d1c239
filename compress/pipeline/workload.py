"""How much a training will do, how much memory it holds and how much disk it fills: from shapes and lengths alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compress.data.batches import bucketed
from compress.environment import cuda_devices, describe_cpu
from compress.folder import ShapeInfo
from compress.losses import LOSSES, AnswerLoss, LayerLoss
from compress.measure.flops import per_piece
from compress.measure.pace import Load, loads_of
from compress.recipe.training import Distill, Training

WEIGHT = 4
"""Bytes of a weight, a gradient and each of Adam's two memories."""
LEARNING = 4 * WEIGHT
KEPT = 18.0, 4.0
"""Bytes in bf16 that a layer keeps of a piece for the way back, by hidden size and by FFN width: Korthikanti et al.,
"Reducing Activation Recomputation in Large Transformer Models", 2022 (arXiv:2205.05198), section 4.1, without the
attention maps, which fused attention does not keep."""
FP32_MAPS = 3
"""Attention maps that a layer keeps for the way back in fp32."""
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
    first: Load
    """Of the updates in the first epoch."""
    later: Load
    updates: tuple[int, int]
    """In the first epoch, and in later ones."""
    per_epoch: int
    evaluations: int
    restarts: int
    longest: int
    batch: int
    lengths: NDArray[np.int64]

    def flops(self, load: Load) -> float:
        """Operations of updates: forwards and twice that backwards for the student, forwards for its teachers."""
        return 3 * operations(self.student, load) + sum(operations(each, load) for each in self.teachers)


def operations(shape: ShapeInfo, load: Load) -> float:
    """Operations of forward passes; 0 where they are not known."""
    piece, pair = per_piece(shape) or (0, 0)
    return float(piece) * load.pieces + float(pair) * load.squares


def workload(student: ShapeInfo, teachers: Sequence[ShapeInfo], settings: Training, lengths: Lengths) -> Workload:
    """What training ``student`` on rows of these lengths comes to; ``teachers`` only where some loss asks them."""
    every = lengths.all
    per_epoch = math.ceil(math.ceil(len(every) / settings.batch_size) / settings.accumulate)
    wanted = math.ceil(settings.epochs * per_epoch)
    total = min(wanted, settings.max_steps or wanted)
    first = min(total, per_epoch)
    epoch = loads_of(every, bucketed(every, settings.batch_size, 0, 0))
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
    )


def asks(settings: Training) -> bool:
    """Whether a training runs a teacher."""
    named = settings.loss_names() if isinstance(settings, Distill) else set()
    return any(isinstance(LOSSES[name], (AnswerLoss, LayerLoss)) for name in named)


def memory(work: Workload, settings: Training) -> int:
    """Bytes that the training process holds at its worst moment, which is the longest batch."""
    pieces, full = work.batch * work.longest, in_fp32(settings)
    wide = 2.0 if full else 1.4  # norms, sums and the loss stay in fp32
    kept = sum(KEPT[0] * work.student.hidden + KEPT[1] * ffn for ffn in work.student.ffn) * pieces * wide
    if full:  # attention in fp32 with dropout is not fused on a CPU
        kept += FP32_MAPS * WEIGHT * sum(work.student.heads) * pieces * work.longest
    passing = sum(2 * WEIGHT * (each.hidden + max(each.ffn)) * pieces for each in work.teachers[:1])
    weights = LEARNING * work.student.parameters + WEIGHT * sum(each.parameters for each in work.teachers)
    return round(PROCESS + weights + kept + passing + _observed(work, settings) + _maps(work, settings))


def in_fp32(settings: Training) -> bool:
    """Whether a training runs in full precision here, as `train.precision` will choose."""
    return settings.precision == "fp32" or (
        settings.precision == "auto" and not describe_cpu().has_bf16 and not cuda_devices()
    )


def _observed(work: Workload, settings: Training) -> float:
    """What hooks hold of the teacher's mapped layers while a batch is compared."""
    return float(sum(_parts(work, settings).values()) * work.batch * work.longest)


def _maps(work: Workload, settings: Training) -> float:
    """Attention maps of student and teacher, of one pair of layers at a time, and what comes of them."""
    if not isinstance(settings, Distill) or not settings.loss_names() & {"attention", "relation"}:
        return 0.0
    heads = max(heads for each in (work.student, *work.teachers) for heads in each.heads)
    return 4.0 * WEIGHT * work.batch * heads * work.longest**2


def _parts(work: Workload, settings: Training) -> dict[str, int]:
    """Bytes a piece that the losses look at in the teacher's layers, by loss."""
    if not isinstance(settings, Distill) or not work.teachers:
        return {}
    width, pairs = work.teachers[0].hidden * WEIGHT, work.student.layers
    found = {name: LOSSES[name] for name in settings.loss_names()}
    return {
        name: width * len(loss.needs) * (pairs if loss.at == "mapped" else 1)
        for name, loss in found.items()
        if isinstance(loss, LayerLoss)
    }


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
    layers = sum(_parts(work, settings).values()) * int(work.lengths.sum())
    return min(answers + layers, settings.cache.disk) if answers <= settings.cache.disk else 0


def _part(load: Load, share: float) -> Load:
    return Load(round(load.pieces * share), round(load.squares * share))
