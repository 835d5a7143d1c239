"""A trial of both precisions: the same update of a training several times in each, on copies of all that it changes."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from compress.models.encoder_parts import shape_of
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Training, number
from compress.train.core.device_batches import DeviceBatches
from compress.train.core.distributed import Processes
from compress.train.core.gradients import Gradients
from compress.train.core.optimizer import ModelAndOptimizer
from compress.train.core.shares import ShareThreads, share_count, shared_teachers
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.fast_paths.fast_training import fast_training
from compress.train.objective import Objective
from compress.train.precision.choose_precision import is_always_tried

TURNS = 2
"""Both precisions take turns, so that the load of the machine meets both alike."""
MOST, LEAST = 3, 2
"""Updates of a turn; the first ones prepare memory, and the fastest one counts."""
SHARE = 0.05
"""Of all updates of the training, the most that a trial may do."""
SAMPLE = 64
"""Updates from the first, of which the one with the most usual number of tokens is tried."""


@dataclass(frozen=True)
class PrecisionTrial:
    """The trial of one training on a CPU, which leaves everything that belongs to the training as it is.

    Of several processes the main one tries its share of the batches alone.
    """

    model: PreTrainedModel
    objective: Objective
    settings: Training
    batches: DeviceBatches
    schedule: UpdateSchedule
    lengths: NDArray[np.int64]
    vocabulary: NDArray[np.int64]
    processes: Processes

    def key(self) -> dict[str, Any]:
        """Return what the gain depends on besides the machine; lengths count up to the next power of two."""
        tokens, rows = self._load(self._update), sum(map(len, self.schedule.batches(self._update)))
        settings, models = self.settings, (self.model, *self.objective.teachers())
        return {
            "models": [f"{type(model).__name__} {shape_of(model).model_dump_json()}" for model in models],
            "objective": type(self.objective).__name__,
            "losses": sorted(settings.loss_names()) if isinstance(settings, Distill) else [],
            "settings": [type(settings).__name__, number(settings.batch_size), settings.freeze],
            "length": 1 << (tokens // rows - 1).bit_length(),
            "processes": self.processes.count,
        }

    def updates(self) -> int:
        """Return how many updates of each precision are tried; 0 where the training is too short for that."""
        each = MOST if is_always_tried() else min(MOST, int(SHARE * self.schedule.least / (2 * TURNS)))
        return TURNS * each if each >= LEAST else 0

    def gain(self, updates: int) -> float:
        """Return how many times faster an update is in bf16: the fastest of ``updates`` in each precision count."""
        twin, objective = copy.deepcopy((self.model, self.objective.uncached()), shared_teachers(self.objective))
        seconds: dict[str, list[float]] = {"fp32": [], "bf16": []}
        with _unchanged_randomness():
            for _ in range(TURNS):
                for precision in seconds:
                    seconds[precision] += self._time(twin, objective, precision, updates // TURNS)
        return min(seconds["fp32"]) / min(seconds["bf16"])

    def _time(self, model: PreTrainedModel, objective: Objective, precision: str, count: int) -> list[float]:
        """Return the seconds of each of ``count`` updates."""
        device, settings = self.processes.device, self.settings
        threads = ShareThreads(share_count(objective, model, settings, self.processes))
        extra = [module.to(device) for module in objective.modules()]
        trained = ModelAndOptimizer(model, extra, settings, precision, self.vocabulary, threads)
        gradients = Gradients(objective, self.batches, self.schedule, trained, self.processes.alone(), threads)
        teachers, seconds = objective.teachers(), []
        with (
            fast_training(model, teachers, trained.embeddings, precision, device, shares=threads.count),
            threads.started(),
        ):
            for _ in range(count):
                started = time.perf_counter()
                model.train()
                objective.begin(self._update / self.schedule.total, self._update)
                update = gradients.accumulate(self._update, checkpoint_due=False)
                trained.step(self.schedule.factor(0), update.norm, settings.clip)
                seconds.append(time.perf_counter() - started)
        return seconds

    @cached_property
    def _update(self) -> int:
        """The number of the tried update: the one whose tokens are nearest to the mean."""
        loads = [self._load(update) for update in range(min(SAMPLE, self.schedule.per_epoch, self.schedule.total))]
        mean = sum(loads) / len(loads)
        return min(range(len(loads)), key=lambda update: abs(loads[update] - mean))

    def _load(self, update: int) -> int:
        """Return the tokens of an update, padding included."""
        return sum(len(batch) * int(self.lengths[batch].max()) for batch in self.schedule.batches(update))


@contextmanager
def _unchanged_randomness() -> Iterator[None]:
    """Restore the states of all random generators after the block."""
    python, arrays = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
