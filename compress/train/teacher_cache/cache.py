"""Cache of teacher outputs on disk, so that the teacher runs only once per example."""

from __future__ import annotations

import copy
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compress.batch_arrays import INDEX
from compress.console import Console
from compress.errors import format_bytes, pluralize
from compress.model_folder.model_info import TaskInfo
from compress.models.encoder_parts import Captured, LayerParts
from compress.recipe.distill_schema import Distill
from compress.tasks import kind_of
from compress.train.core.distributed import current_processes
from compress.train.core.last_layer_effort import TOKEN_HEADS
from compress.train.core.seed_restarts import FOLDER
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.distillation.phases import loss_phases
from compress.train.distillation.teachers import ModelOutputs, Teacher, TeacherCacheFactory
from compress.train.fast_paths.torch_compile import eager_only
from compress.train.objective import Batch, Examples
from compress.train.teacher_cache.cache_file import LAYER, CachedTensor, CachePlan, Indices, TensorFormat, layer_key

ON_GPU = "on a GPU, layer outputs are cached only if `cache` sets a size"
"""Why less is cached there than the recipe suggests."""

RESERVE = 2**30
"""Bytes of the disk that remain free for checkpoints and other files."""

FLAGS = "present"
"""Name of the file with one byte per example: whether its values are present."""


class CachedTeacher(Teacher):
    """A teacher that computes each example once and reads it from disk afterwards, as far as the budget allows."""

    def __init__(
        self,
        teacher: Teacher,
        wanted: LayerParts,
        examples: Examples,
        work: Path,
        disk: int,
        *,
        per_token: bool = False,
        compiles: bool = False,
        console: Console | None = None,
        label: str = "distill",
    ) -> None:
        """Cache outputs for the lasting ``examples`` in a folder of ``work``.

        ``wanted`` are all layer parts to cache, ``disk`` is the budget in bytes, ``per_token`` says whether logits are
        per token, and ``compiles`` whether the teacher may be compiled.
        """
        super().__init__(teacher.members)
        self._teacher, self._wanted, self._examples, self._work, self._disk = teacher, wanted, examples, work, disk
        self._ends: Indices = np.cumsum(examples.example_lengths[: examples.cacheable])
        self._per_token, self._compiles = per_token, compiles
        self._console, self._label = console or Console("quiet"), label
        self._folder: Path | None = None
        self._tensors: dict[str, CachedTensor] = {}
        self._flags: CachedTensor

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedTeacher:
        """Return a cache with copies of the models and the same files."""
        twin = copy.copy(self)
        memo[id(self)] = twin
        for name in ("members", "models", "model", "_teacher"):
            setattr(twin, name, copy.deepcopy(getattr(self, name), memo))
        return twin

    def uncached(self) -> Teacher:
        """Return the teacher itself."""
        return self._teacher

    def begin(self) -> None:
        """Open the files at the first update, when the teacher has its precision and all processes take part."""
        if self._folder is not None:
            return
        processes = current_processes()
        examples = self._examples.digest(), len(self._ends)
        precision = sorted({str(parameter.dtype) for parameter in self.model.parameters()})
        identity = repr([self.identity(), *examples, processes.device.type, precision, self._disk])
        self._folder = self._work / f"teacher-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        try:
            if processes.is_main and not self._open(self._folder):
                self._create(self._folder, processes.device)
        except OSError as error:
            self._disable(error)
        processes.wait()
        self._open(self._folder)

    def __call__(self, batch: Batch, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
        """Return cached outputs, and compute missing ones."""
        outputs = [key for key in self._tensors if not key.startswith(LAYER)]
        layers = [layer_key(layer, part) for layer, parts in wanted.items() for part in sorted(parts)]
        if not outputs or not self._tensors.keys() >= set(layers):
            return self._teacher(batch, wanted)
        tensors = {key: self._tensors[key] for key in (*outputs, *layers)}  # readable if the cache is dropped below
        index: Indices = batch[INDEX].numpy()
        in_cache = index < min(map(len, tensors.values()))
        computed = []
        if (in_cache & ~self._present(index)).any():
            computed.append(self._compute(batch, index, np.flatnonzero(in_cache), self._wanted))
        if not in_cache.all():
            computed.append(self._compute(batch, index, np.flatnonzero(~in_cache), wanted))
        present = self._present(index)
        values: TeacherTensors = {}
        for key, tensor in tensors.items():
            known = present & (index < len(tensor))
            if not known.any() and len(computed) == 1:
                values[key] = computed[0][1][key]
                continue
            read = tensor.read(index[known], batch["input_ids"].shape[1]).to(batch["input_ids"].device)
            values[key] = read.new_empty((len(index), *read.shape[1:]))
            values[key][_on(read, np.flatnonzero(known))] = read
            for rows, fresh in computed:
                new = np.flatnonzero(~known[rows])
                values[key][_on(read, rows[new])] = fresh[key][_on(read, new)]
        return unflatten(values, wanted)

    def _compute(
        self, batch: Batch, index: Indices, rows: Indices, wanted: LayerParts
    ) -> tuple[Indices, TeacherTensors]:
        """Run the teacher on these rows of the batch and store new outputs; returns the rows and the outputs."""
        whole = len(rows) == len(index)
        per_example = {name: tensor for name, tensor in batch.items() if tensor.shape[:1] == (len(index),)}
        part = batch if whole else {name: tensor[_on(tensor, rows)] for name, tensor in per_example.items()}
        with eager_only(self._compiles and not whole):  # each number of rows would be compiled separately
            outputs = flatten(*self._teacher(part, wanted))
        try:
            self._store(index[rows], outputs)
        except OSError as error:
            self._disable(error)
        return rows, outputs

    def _store(self, index: Indices, outputs: TeacherTensors) -> None:
        """Write new outputs that there is space for, then mark them as present."""
        if not self._tensors:  # just disabled
            return
        new = (index < len(self._flags)) & ~self._present(index)
        for key, tensor in self._tensors.items():
            rows = np.flatnonzero(new & (index < len(tensor)))
            if len(rows):
                tensor.write(index[rows], outputs[key][_on(outputs[key], rows)])
        self._flags.write(index[new], torch.ones(int(new.sum()), dtype=torch.int8))

    def _present(self, index: Indices) -> NDArray[np.bool_]:
        """Return which of these examples are present."""
        present = index < len(self._flags)
        present[present] = self._flags.read(index[present], 1).numpy() != 0
        return present

    def _disable(self, error: OSError) -> None:
        """Continue without a cache, and free its disk space for checkpoints."""
        self._tensors = {}
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._console.warn(
            f"{self._label}: teacher outputs cannot be cached ({error.strerror or error}): "
            "training continues without a cache, and the teacher runs in every epoch."
        )

    def _open(self, folder: Path) -> bool:
        """Open the files if they hold everything needed (another student may use other layers)."""
        plan = CachePlan.read(folder)
        needed = {layer_key(layer, part) for layer, parts in self._wanted.items() for part in parts}
        if plan is None or not needed <= plan.layers.keys():
            return False
        if not plan.examples:
            return True
        try:
            self._flags = CachedTensor(folder / FLAGS, _flags_format(plan.examples), self._ends)
            forms = plan.tensors().items()
            self._tensors = {key: CachedTensor(_values(folder, key), form, self._ends) for key, form in forms}
        except OSError:
            return False
        return True

    def _create(self, folder: Path, device: torch.device) -> None:
        """Plan from the teacher's outputs for the first example, and create the files."""
        shutil.rmtree(folder, ignore_errors=True)
        first = self._examples.batch(np.zeros(1, np.int64))
        batch = {name: torch.from_numpy(array).to(device) for name, array in first.items()}
        tensors = flatten(*self._teacher(batch, self._wanted)).items()
        count = len(self._ends)
        layers = {key: TensorFormat.of(tensor, True) for key, tensor in tensors if key.startswith(LAYER)}
        outputs = {key: TensorFormat.of(tensor, self._per_token, count) for key, tensor in tensors if key not in layers}
        folder.mkdir(parents=True)
        budget = min(self._disk, max(0, shutil.disk_usage(folder).free - RESERVE))
        plan = CachePlan.within(budget, outputs, layers, self._ends)
        self._log_plan(plan, budget)
        if plan.examples:
            CachedTensor(folder / FLAGS, _flags_format(plan.examples), self._ends, create=True)
            for key, form in plan.tensors().items():
                CachedTensor(_values(folder, key), form, self._ends, create=True)
        plan.write(folder)

    def _log_plan(self, plan: CachePlan, limit: int) -> None:
        """Log what is cached as one line."""
        if not plan.examples:
            self._console.warn(
                f"{self._label}: the teacher's outputs alone need more than {format_bytes(limit)}: nothing is cached."
            )
            return
        text = f"the teacher's outputs for {pluralize(plan.examples, 'example')}"
        if plan.layers:
            text += f", and its layers for {min(form.examples for form in plan.layers.values()):,} of them"
        size = format_bytes(sum(form.size(self._ends) for form in plan.tensors().values()))
        self._console.note(f"{self._label}: {text} are cached on disk: up to {size} of {format_bytes(limit)}")


def _on(tensor: Tensor, rows: Indices) -> Tensor:
    """Return row numbers on the device of a tensor."""
    return torch.from_numpy(rows).to(tensor.device)


def _values(folder: Path, key: str) -> Path:
    return folder / f"{key}.values"


def _flags_format(examples: int) -> TensorFormat:
    return TensorFormat(dtype="int8", shape=(), per_token=False, examples=examples)


def make_teacher_cache(
    settings: Distill, examples: Examples, task: TaskInfo, work: Path, console: Console, label: str
) -> TeacherCacheFactory | None:
    """Return a function that wraps a teacher with a cache for these examples; None without a cache in the recipe.

    Also None where a cache would be useless: no loss needs the teacher, no example occurs twice, several machines share
    no disk, or all phases need layers that are not cached. On a GPU layers are cached only if the recipe sets a size:
    there, computing them again may be faster than reading them.
    """
    schedule = UpdateSchedule(examples.lengths, settings, 0)
    phases = [phase for phase in loss_phases(settings) if phase.needs_teacher]
    once = schedule.total <= schedule.per_epoch and settings.restarts == 1
    if not settings.cache or once or not phases:
        return None
    processes, budget = current_processes(), settings.cache
    on_gpu = processes.device.type == "cuda"
    with_layers = budget.disk is not None or not on_gpu
    if not with_layers and any(phase.layer_losses for phase in phases):
        console.note(f"{label}: {ON_GPU}")
        if all(phase.layer_losses for phase in phases):
            return None
    if int(os.environ.get("LOCAL_WORLD_SIZE", processes.count)) != processes.count:
        console.note(f"{label}: several machines share no disk, so teacher outputs are not cached")
        return None
    return lambda teacher, wanted: CachedTeacher(
        teacher,
        wanted if with_layers else {},
        examples,
        work / FOLDER,
        budget.limit,
        per_token=kind_of(task).head in TOKEN_HEADS,
        compiles=settings.compile and on_gpu,
        console=console if processes.is_main else None,
        label=label,
    )


TeacherTensors = dict[str, Tensor]
"""All teacher outputs of a batch, each (examples, [tokens,] ...): outputs by name, parts of layers by `layer_key`."""


def flatten(answers: ModelOutputs, seen: Captured) -> TeacherTensors:
    """Return all tensors by key, with examples and tokens as first dimensions."""
    layers = {
        layer_key(layer, part): tensor if part == "hidden" else tensor.transpose(1, 2)
        for layer, parts in seen.items()
        for part, tensor in parts.items()
    }
    return {**answers, **layers}


def unflatten(tensors: TeacherTensors, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
    """Invert `flatten`, for the wanted layers."""
    answers = {key: tensor for key, tensor in tensors.items() if not key.startswith(LAYER)}
    seen: Captured = {layer: {} for layer in wanted}
    for layer, parts in wanted.items():
        for part in parts:
            tensor = tensors[layer_key(layer, part)]
            seen[layer][part] = tensor if part == "hidden" else tensor.transpose(1, 2)
    return answers, seen
