"""The precision of a training: what the recipe says, or what is faster here, with the reason.

What is faster is decided by a trial: the same update several times in each precision, on copies of all that it changes.
"""

import copy
import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor
from transformers import PreTrainedModel

from compress.environment import describe_cpu
from compress.environment.cpu import Cpu
from compress.models.encoder_parts import shape_of
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Training, number
from compress.storage.atomic_write import atomic_write
from compress.storage.file_names import cache_folder
from compress.storage.stored_info import Info
from compress.train.core.distributed import Processes
from compress.train.core.gradients import DeviceBatches, Gradients
from compress.train.core.optimizer import ModelAndOptimizer
from compress.train.core.shares import ShareThreads, share_count, shared_teachers
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.fast_paths.fast_training import BF16_MULTIPLE, fast_training, width_multiple
from compress.train.objective import Objective

BF16_GAIN = 1.2
"""How many times faster bf16 must be on a CPU: some have the instructions and multiply fp32 faster, and below that the
rounding is not worth its gain."""

PRODUCT_TURNS = 10

FOLDER = "precision"
"""Of kept choices, in the cache folder."""

_IS_ALWAYS_TRIED: ContextVar[bool] = ContextVar("is_always_tried", default=False)


class PrecisionChoice(Info):
    """A precision of trainings, and why it is that one."""

    precision: str
    reason: str | None = None
    """None where the recipe says so."""


class KeptChoice(PrecisionChoice):
    """The content of a file."""

    schema_version: Literal[1] = 1
    precision: Literal["fp32", "bf16"]
    key: Mapping[str, Any]
    """The machine and the shape; the file is named by its digest."""


@contextmanager
def always_tried() -> Iterator[None]:
    """Let trainings of any length try both precisions within the block, for longer ones of the same shape later."""
    token = _IS_ALWAYS_TRIED.set(True)
    try:
        yield
    finally:
        _IS_ALWAYS_TRIED.reset(token)


def is_always_tried() -> bool:
    """Return whether the current block is one of `always_tried`."""
    return _IS_ALWAYS_TRIED.get()


def choose_precision(requested: str, device: torch.device, trial: "PrecisionTrial | None") -> PrecisionChoice:
    """Return the requested precision, or for `auto` the faster one on the device, with the reason.

    On a CPU with bf16 instructions that is what an earlier ``trial`` of the same shape chose, else what this one does.
    A training that is too short for one, or without one, follows the products.
    """
    if requested != "auto":
        return PrecisionChoice(precision=requested)
    if device.type == "cuda":
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        reason = f"this GPU has {'' if has_bf16 else 'no '}bf16 instructions"
        return PrecisionChoice(precision="bf16" if has_bf16 else "fp32", reason=reason)
    cpu = describe_cpu()
    if cpu.has_bf16:
        return _by_trial(_machine(cpu), trial) if trial else _by_products(_machine(cpu))
    unknown = cpu.has_bf16 is None
    reason = "the instructions of this CPU are unknown" if unknown else "this CPU has no bf16 instructions"
    return PrecisionChoice(precision="fp32", reason=reason)


def _by_trial(machine: Mapping[str, Any], trial: "PrecisionTrial") -> PrecisionChoice:
    """Return the kept choice for a training of this shape, else that of its trial, else that of products."""
    key = {**machine, **trial.key()}
    if kept := kept_choice(key):
        return kept
    if count := trial.updates():
        return _keep(key, trial.gain(count), f"updates {{}}, {count} of each precision tried")
    return _by_products(machine)


def _by_products(machine: Mapping[str, Any]) -> PrecisionChoice:
    """Return the kept choice of products of a layer's size, else time them."""
    key = {**machine, "of": "products"}
    return kept_choice(key) or _keep(key, product_gain(), "too few updates to try both, products {}")


def _keep(key: Mapping[str, Any], gain: float, reason: str) -> PrecisionChoice:
    """Keep the choice that follows from a gain, which the ``reason`` has a place for.

    Where another process kept one meanwhile, that is returned.
    """
    if other := kept_choice(key):
        return other
    reason = reason.format(f"{gain:.2f} times as fast in bf16")
    choice = PrecisionChoice(precision="bf16" if gain >= BF16_GAIN else "fp32", reason=reason)
    keep(key, choice)
    return choice


def kept_choice(key: Mapping[str, Any]) -> PrecisionChoice | None:
    """Return the choice that was kept for a key; None without one, or where its file is damaged."""
    try:
        kept = KeptChoice.model_validate_json(_path(key).read_bytes())
    except (OSError, ValidationError):
        return None
    return PrecisionChoice(precision=kept.precision, reason=kept.reason)


def keep(key: Mapping[str, Any], choice: PrecisionChoice) -> None:
    """Keep a choice; where the cache folder cannot be written, the next training chooses again."""
    kept = KeptChoice.model_validate({**choice.model_dump(), "key": key})
    with suppress(OSError):
        atomic_write(_path(key), kept.model_dump_json(indent=2) + "\n")


def _path(key: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return cache_folder() / FOLDER / f"{digest[:16]}.json"


def _machine(cpu: Cpu) -> dict[str, Any]:
    """Return what speeds depend on besides the training."""
    instructions, threads = " ".join(cpu.instructions or ()), torch.get_num_threads()
    return {"cpu": cpu.model, "instructions": instructions, "threads": threads, "torch": torch.__version__}


def product_gain() -> float:
    """Return how many times faster a product of a layer's size is in bf16 than in fp32; takes about 0.1 s."""
    factors = torch.ones(512, 384), torch.ones(384, 1536)
    bf16 = factors[0].bfloat16(), factors[1].bfloat16()
    turns = [(_seconds(*factors), _seconds(*bf16)) for _ in range(PRODUCT_TURNS)]
    return min(fp32 for fp32, _ in turns) / min(bf16 for _, bf16 in turns)


def _seconds(left: Tensor, right: Tensor) -> float:
    started = time.perf_counter()
    torch.mm(left, right)
    return time.perf_counter() - started


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
    batches_of: Callable[[int], DeviceBatches]
    """Returns batches as wide as multiples of a number."""
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
            "widths": BF16_MULTIPLE,
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
        batches = self.batches_of(width_multiple(precision, device))
        threads = ShareThreads(share_count(objective, model, settings, self.processes))
        extra = [module.to(device) for module in objective.modules()]
        trained = ModelAndOptimizer(model, extra, settings, precision, self.vocabulary, threads)
        gradients = Gradients(objective, batches, self.schedule, trained, self.processes.alone(), threads)
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
