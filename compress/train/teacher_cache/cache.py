"""Cache of teacher outputs on disk, so that the teacher runs only once per example.

The teacher is frozen: its outputs for a text are the same in every epoch, up to rounding that depends on padding. Its
logits are always cached, a few numbers per example; hidden states, queries, keys and values are cached for as many
examples as the recipe's disk budget holds, counted from the first. A batch has two parts: examples with a slot for
everything requested, and the others. The first are read; if any of them is missing, all of them are computed together,
and everything that any later phase needs is stored. The others are computed together in every epoch. So which examples
share a forward pass, which affects rounding, follows from the batch and never from the state of the cache, and a
training that is killed and resumed ends in the same bits on a CPU, and on a GPU as close as the order of sums allows.

Values are written before the byte that marks them as present. A power cut may still preserve the byte and lose the
values, so files written before the last boot of the machine are discarded.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from compress.batch_arrays import INDEX
from compress.console import Console
from compress.errors import format_bytes, pluralize
from compress.model_info import TaskInfo
from compress.models.forward_hooks import Captured, LayerParts
from compress.recipe.training_schema import Distill
from compress.tasks import kind_of
from compress.train.core.distributed import current_processes
from compress.train.core.seed_restarts import FOLDER
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.distillation.phases import loss_phases
from compress.train.distillation.teachers import ModelOutputs, Teacher, TeacherCacheFactory
from compress.train.fast_paths.torch_compile import eager_only
from compress.train.objective import Batch, Examples
from compress.train.teacher_cache.cache_file import CachedTensor, Indices, PresenceFlags, TensorFormat
from compress.train.teacher_cache.cache_plan import CachePlan, Key
from compress.train.teacher_cache.cache_table import (
    Selected,
    TeacherTensors,
    assemble,
    flatten,
    index_rows,
    sub_batch,
    unflatten,
)

ON_GPU = "on a GPU, layer outputs are cached only if `cache` sets a size"
"""Why less is cached there than the recipe suggests."""

RESERVE = 2**30
"""Bytes of the disk that remain free for checkpoints and other files."""

FLAGS = "stands"
"""Name of the file with the presence flags."""

TOKEN_PROBLEMS = frozenset({"token_classification", "question_answering"})
"""Problems with logits per token."""


class CachedTeacher:
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
        layers: bool = True,
        compiles: bool = False,
        console: Console | None = None,
        label: str = "distill",
    ) -> None:
        """Cache outputs for the lasting ``examples`` in a folder of ``work``.

        ``wanted`` are all layer parts that any phase needs, ``disk`` is the budget in bytes, ``per_token`` says whether
        logits are per token, ``layers`` whether layer parts are cached too, and ``compiles`` whether the teacher may be
        compiled.
        """
        self._teacher = teacher
        self._wanted = wanted if layers else {}
        self._layers_excluded = bool(wanted) and not layers
        self._examples = examples
        self._ends: Indices = np.cumsum(examples.example_lengths[: examples.cacheable])
        self._work = work
        self._disk = disk
        self._per_token = per_token
        self._compiles = compiles
        self._console = console or Console("quiet")
        self._label = label
        self._folder: Path | None = None
        self._tensors: dict[Key, CachedTensor] = {}
        self._flags: PresenceFlags
        self._seconds_cached = 0.0

    @property
    def model(self) -> PreTrainedModel:
        """The teacher's model."""
        return self._teacher.model

    def models(self) -> Sequence[PreTrainedModel]:
        """Return the teacher's models."""
        return self._teacher.models()

    def identity(self) -> str:
        """Return the teacher's digest: outputs are the same."""
        return self._teacher.identity()

    def begin(self) -> None:
        """Open the files at the first update, when the teacher has its precision and all processes take part."""
        self._teacher.begin()
        if self._folder is None:
            self._open()

    def seconds_cached(self) -> float:
        """Return the teacher's seconds for outputs that are cached."""
        return self._seconds_cached

    def __call__(self, batch: Batch, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
        """Return cached outputs, and compute missing ones."""
        keys = self._keys(wanted)
        if not keys:
            return self._teacher(batch, wanted)
        tensors = {key: self._tensors[key] for key in keys}  # remain readable if the cache is dropped below
        index: Indices = batch[INDEX].numpy()
        in_cache = np.all([tensor.has_slot(index) for tensor in tensors.values()], axis=0)
        new = self._flags.missing(index) & in_cache
        computed = []
        if new.any():
            started = time.monotonic()
            computed.append(self._compute(batch, index, in_cache, self._wanted))
            if self._tensors:
                self._seconds_cached += (time.monotonic() - started) * float(new[in_cache].mean())
        if not in_cache.all():
            computed.append(self._compute(batch, index, ~in_cache, wanted))
        present = self._flags.present(index)
        outputs = {key: assemble(key, tensor, index, present, computed, batch) for key, tensor in tensors.items()}
        return unflatten(outputs, wanted)

    def _keys(self, wanted: LayerParts) -> list[Key]:
        """Return the keys of everything requested; empty if any of it has no file."""
        outputs: list[Key] = [key for key in self._tensors if key[0] is None]
        layers: list[Key] = [(layer, part) for layer, parts in wanted.items() for part in sorted(parts)]
        return [*outputs, *layers] if outputs and self._tensors.keys() >= set(layers) else []

    def _compute(
        self, batch: Batch, index: Indices, selected: Selected, wanted: LayerParts
    ) -> tuple[Indices, TeacherTensors]:
        """Run the teacher on the selected examples and store new outputs; returns their rows and the outputs."""
        rows = np.flatnonzero(selected)
        with eager_only(self._compiles and len(rows) < len(index)):  # each number of rows would be compiled separately
            outputs = flatten(*self._teacher(sub_batch(batch, rows), wanted))
        try:
            self._store(index[rows], outputs)
        except OSError as error:
            self._disable(error)
        return rows, outputs

    def _store(self, index: Indices, outputs: TeacherTensors) -> None:
        """Write new outputs that have a slot, then mark them as present."""
        if not self._tensors:  # just disabled
            return
        new = self._flags.missing(index)
        for key, tensor in self._tensors.items():
            rows = np.flatnonzero(new & tensor.has_slot(index))
            if len(rows):
                tensor.write(index[rows], index_rows(outputs[key], rows))
        self._flags.add(index[new])

    def _disable(self, error: OSError) -> None:
        """Continue without a cache, and free its disk space for checkpoints."""
        self._tensors, self._seconds_cached = {}, 0.0
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._console.warn(
            f"{self._label}: teacher outputs cannot be cached ({error.strerror or error}): "
            "training continues without a cache, and the teacher runs in every epoch."
        )

    def _open(self) -> None:
        """Open the files of this teacher and these examples, or create them."""
        processes = current_processes()
        folder = self._folder = self._work / f"teacher-{self._name(processes.device)}"
        try:
            if processes.is_main and self._read_plan(folder) is None:
                self._create(folder, processes.device)
        except OSError as error:
            self._disable(error)
        processes.wait()
        plan = self._read_plan(folder)
        try:
            if plan is not None and plan.answers:
                self._flags = PresenceFlags(folder / FLAGS, plan.answers)
                self._tensors = {key: self._open_tensor(folder, plan, key) for key in plan.forms}
        except OSError as error:
            self._disable(error)

    def _read_plan(self, folder: Path) -> CachePlan | None:
        """Return the stored plan if it covers everything needed (another student may use other layers)."""
        plan = CachePlan.read(folder, self._disk)
        needed = {(layer, part) for layer, parts in self._wanted.items() for part in parts}
        if plan is None or not needed <= plan.forms.keys():
            return None
        sizes = self._sizes(folder, plan).items()  # a truncated file would be read as zeros
        return plan if all(path.is_file() and path.stat().st_size == size for path, size in sizes) else None

    def _open_tensor(self, folder: Path, plan: CachePlan, key: Key) -> CachedTensor:
        return CachedTensor(_values(folder, key), plan.forms[key], self._ends[: plan.count(key)])

    def _sizes(self, folder: Path, plan: CachePlan) -> dict[Path, int]:
        """Return all files and their sizes in bytes, including holes; none where nothing is cached."""
        if not plan.answers:
            return {}
        forms = plan.forms.items()
        values = {_values(folder, key): form.offset(plan.count(key), self._ends) for key, form in forms}
        return {folder / FLAGS: plan.answers, **values}

    def _create(self, folder: Path, device: torch.device) -> None:
        """Plan from the teacher's outputs for the first example, and create the files."""
        shutil.rmtree(folder, ignore_errors=True)
        first = self._examples.batch(np.zeros(1, np.int64))
        batch = {name: torch.from_numpy(array).to(device) for name, array in first.items()}
        outputs = flatten(*self._teacher(batch, self._wanted))
        forms = {key: TensorFormat.of(tensor, key[0] is not None or self._per_token) for key, tensor in outputs.items()}
        folder.mkdir(parents=True)
        free = max(0, shutil.disk_usage(folder).free - RESERVE)
        plan = CachePlan.within(min(self._disk, free), forms, self._ends)
        self._log_plan(plan, free)
        for path, size in self._sizes(folder, plan).items():
            path.touch()
            os.truncate(path, size)
        plan.write(folder, self._disk)

    def _log_plan(self, plan: CachePlan, free: int) -> None:
        """Log what is cached as one line."""
        limit = f"{format_bytes(self._disk)} of cache.disk"
        if free < self._disk:
            limit = f"{format_bytes(free)} free on the disk"
        if not plan.answers:
            self._console.warn(
                f"{self._label}: the teacher's outputs alone need more than the {limit}: nothing is cached."
            )
            return
        text = f"the teacher's outputs for {pluralize(plan.answers, 'example')}"
        if self._wanted and plan.layers:
            part = "all" if plan.layers == len(self._ends) else f"{plan.layers:,}"
            layers = ", ".join("embeddings" if layer < 0 else str(layer) for layer in sorted(self._wanted))
            text += f", and its layers ({layers}) for {part} of them"
        text += f" are cached on disk between epochs, up to {format_bytes(plan.most)} of {limit}"
        if self._layers_excluded:
            text += f", for updates without layer losses: {ON_GPU}"
        self._console.note(f"{self._label}: {text}")

    def _name(self, device: torch.device) -> str:
        """Return a digest of the teacher, in the precision it runs in, and the examples."""
        identity = repr([self._teacher.identity(), self._examples.digest(), len(self._ends), device.type])
        return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _values(folder: Path, key: Key) -> Path:
    """Return the file of one tensor."""
    name = key[1] if key[0] is None else f"layer {key[0]} {key[1]}"
    return folder / f"{name}.values"


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
    layers = budget.disk is not None or not on_gpu
    if not layers and all(phase.needs_layers for phase in phases):
        console.note(f"{label}: the teacher runs in every epoch: {ON_GPU}")
        return None
    if int(os.environ.get("LOCAL_WORLD_SIZE", processes.count)) != processes.count:
        console.note(f"{label}: several machines share no disk, so teacher outputs are not cached")
        return None
    return lambda teacher, wanted: CachedTeacher(
        teacher,
        wanted,
        examples,
        work / FOLDER,
        budget.limit,
        per_token=kind_of(task).problem in TOKEN_PROBLEMS,
        layers=layers,
        compiles=settings.compile and on_gpu,
        console=console if processes.is_main else None,
        label=label,
    )
