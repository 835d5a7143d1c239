"""What a teacher says stays on disk between epochs, so that from the second one on it need not be asked again.

A teacher never changes: of the same text it says the same every time, up to the rounding that another padding brings.
Its answers are always worth keeping, a few numbers an example; hidden states, queries, keys and values are kept of as
many examples as the recipe's disk budget holds, counted from the first. A batch falls in two: the examples that have a
place for all that is asked, and the others. The first are read; where any of them is not here yet, they are all run
together, and all is kept that any later phase will ask. The others are run together in every epoch. So which examples
run side by side, which moves the rounding, follows from the batch and never from what stands, and a training that is
killed and goes on ends in the same bits on a CPU, and on a GPU as close as its sums allow.

Values reach their files before the byte that says so. A power cut may still keep the byte and lose the values, so what
was written before the machine was last started is not trusted, and such a cache begins anew.
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

from compress.console import Console
from compress.errors import format_bytes, pluralize
from compress.model_info import TaskInfo
from compress.models.forward_hooks import Captured, LayerParts
from compress.recipe.training_schema import Distill
from compress.tasks import kind_of
from compress.train.core.distributed import Processes
from compress.train.core.seed_restarts import FOLDER
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.distillation.phases import loss_phases
from compress.train.distillation.teachers import ModelOutputs, Teacher, TeacherCacheFactory
from compress.train.fast_paths.torch_compile import eager_only
from compress.train.objective import Batch, Examples
from compress.train.teacher_cache.cache_file import CachedTensor, Places, PresenceFlags, TensorFormat
from compress.train.teacher_cache.cache_plan import CachePlan, Key
from compress.train.teacher_cache.cache_table import (
    Chosen,
    TeacherTensors,
    assemble,
    flat,
    index_rows,
    sub_batch,
    unflat,
)

ON_GPU = "on a GPU what its layers say is kept where `cache` tells a size"
"""Why less is kept there than the recipe may seem to ask for."""

RESERVE = 2**30
"""Bytes of a disk that stay free for checkpoints and for others."""

MARKS = "stands"
"""The file that tells which examples are there."""

OF_PIECES = frozenset({"token_classification", "question_answering"})
"""The problems whose answers are one for each piece."""


class CachedTeacher:
    """Says what a teacher says, and asks it once for each example as long as the disk holds the answer."""

    def __init__(
        self,
        teacher: Teacher,
        wanted: LayerParts,
        examples: Examples,
        work: Path,
        disk: int,
        *,
        of_pieces: bool = False,
        layers: bool = True,
        compiles: bool = False,
        console: Console | None = None,
        label: str = "distill",
    ) -> None:
        """TeacherCacheFactory in a folder of ``work`` what is said of the ``examples`` that are lasting.

        ``wanted`` is all that will ever be asked of layers, ``disk`` the most bytes; ``of_pieces`` tells whether
        answers are one for each piece, ``layers`` whether these are kept too, and ``compiles`` whether the teacher may
        have been compiled.
        """
        self._teacher = teacher
        self._wanted = wanted if layers else {}
        self._passed = bool(wanted) and not layers
        self._examples = examples
        self._ends: Places = np.cumsum(examples.example_lengths[: examples.cacheable])
        self._work = work
        self._disk = disk
        self._of_pieces = of_pieces
        self._compiles = compiles
        self._console = console or Console("quiet")
        self._label = label
        self._folder: Path | None = None
        self._kept: dict[Key, CachedTensor] = {}
        self._marks: PresenceFlags
        self._spared = 0.0

    @property
    def model(self) -> PreTrainedModel:
        """The teacher's."""
        return self._teacher.model

    def models(self) -> Sequence[PreTrainedModel]:
        """The teacher's."""
        return self._teacher.models()

    def identity(self) -> str:
        """The teacher's: nothing else is said here."""
        return self._teacher.identity()

    def begin(self) -> None:
        """Open the files at the first update: the teacher runs in its precision then, and all processes are here."""
        self._teacher.begin()
        if self._folder is None:
            self._open()

    def seconds_cached(self) -> float:
        """Seconds that the teacher took for words that are kept."""
        return self._spared

    def __call__(self, batch: Batch, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
        """From disk what stands there, from the teacher what does not."""
        keys = self._keys(wanted)
        if not keys:
            return self._teacher(batch, wanted)
        kept = {key: self._kept[key] for key in keys}  # still to be read if the disk is full and the files are given up
        index: Places = batch["index"].numpy()
        placed = np.all([each.has_slot(index) for each in kept.values()], axis=0)
        new = self._marks.missing(index) & placed
        asked = []
        if new.any():
            started = time.monotonic()
            asked.append(self._ask(batch, index, placed, self._wanted))
            if self._kept:
                self._spared += (time.monotonic() - started) * float(new[placed].mean())
        if not placed.all():
            asked.append(self._ask(batch, index, ~placed, wanted))
        stand = self._marks.present(index)
        return unflat({key: assemble(key, each, index, stand, asked, batch) for key, each in kept.items()}, wanted)

    def _keys(self, wanted: LayerParts) -> list[Key]:
        """All that is asked; nothing where sub_batch of it has no file."""
        answers: list[Key] = [key for key in self._kept if key[0] is None]
        layers: list[Key] = [(layer, part) for layer, parts in wanted.items() for part in sorted(parts)]
        return [*answers, *layers] if answers and self._kept.keys() >= set(layers) else []

    def _ask(self, batch: Batch, index: Places, chosen: Chosen, wanted: LayerParts) -> tuple[Places, TeacherTensors]:
        """Where in the batch the chosen examples are, and what the teacher says of them; what has a place is kept."""
        rows = np.flatnonzero(chosen)
        with eager_only(self._compiles and len(rows) < len(index)):  # each number of rows would be compiled by itself
            said = flat(*self._teacher(sub_batch(batch, rows), wanted))
        try:
            self._keep(index[rows], said)
        except OSError as error:
            self._give_up(error)
        return rows, said

    def _keep(self, index: Places, said: TeacherTensors) -> None:
        """Put what is new and has a place where it belongs, and then mark that it stands."""
        if not self._kept:  # given up a moment ago
            return
        new = self._marks.missing(index)
        for key, kept in self._kept.items():
            rows = np.flatnonzero(new & kept.has_slot(index))
            if len(rows):
                kept.put(index[rows], index_rows(said[key], rows))
        self._marks.add(index[new])

    def _give_up(self, error: OSError) -> None:
        """Go on without a cache, and give its room back to the checkpoints."""
        self._kept, self._spared = {}, 0.0
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._console.warn(
            f"{self._label}: what the teacher says cannot be kept ({error.strerror or error}): "
            "the training goes on without, and asks it in every epoch."
        )

    def _open(self) -> None:
        """Go on with the files of this teacher and these examples, or begin them."""
        processes = Processes()
        folder = self._folder = self._work / f"teacher-{self._name(processes.device)}"
        try:
            if processes.is_main and self._plan(folder) is None:
                self._begin(folder, processes.device)
        except OSError as error:
            self._give_up(error)
        processes.wait()
        plan = self._plan(folder)
        try:
            if plan is not None and plan.answers:
                self._marks = PresenceFlags(folder / MARKS, plan.answers)
                self._kept = {key: self._opened(folder, plan, key) for key in plan.forms}
        except OSError as error:
            self._give_up(error)

    def _plan(self, folder: Path) -> CachePlan | None:
        """What stands there, if it holds all that will be asked (another student may follow other layers)."""
        plan = CachePlan.read(folder, self._disk)
        asked = {(layer, part) for layer, parts in self._wanted.items() for part in parts}
        if plan is None or not asked <= plan.forms.keys():
            return None
        sizes = self._sizes(folder, plan).items()  # one that was cut off would be read as zeros
        return plan if all(path.is_file() and path.stat().st_size == size for path, size in sizes) else None

    def _opened(self, folder: Path, plan: CachePlan, key: Key) -> CachedTensor:
        return CachedTensor(_values(folder, key), plan.forms[key], self._ends[: plan.count(key)])

    def _sizes(self, folder: Path, plan: CachePlan) -> dict[Path, int]:
        """All files and their bytes, holes included; none where nothing is kept."""
        if not plan.answers:
            return {}
        forms = plan.forms.items()
        values = {_values(folder, key): form.before(plan.count(key), self._ends) for key, form in forms}
        return {folder / MARKS: plan.answers, **values}

    def _begin(self, folder: Path, device: torch.device) -> None:
        """Look at what the teacher says of the first example, and plan."""
        shutil.rmtree(folder, ignore_errors=True)
        first = self._examples.batch(np.zeros(1, np.int64))
        said = flat(
            *self._teacher({name: torch.from_numpy(array).to(device) for name, array in first.items()}, self._wanted)
        )
        forms = {key: TensorFormat.of(tensor, key[0] is not None or self._of_pieces) for key, tensor in said.items()}
        folder.mkdir(parents=True)
        free = max(0, shutil.disk_usage(folder).free - RESERVE)
        plan = CachePlan.within(min(self._disk, free), forms, self._ends)
        self._tell(plan, free)
        for path, size in self._sizes(folder, plan).items():
            path.touch()
            os.truncate(path, size)
        plan.write(folder, self._disk)

    def _tell(self, plan: CachePlan, free: int) -> None:
        """One line about what is kept."""
        limit = f"{format_bytes(self._disk)} of cache.disk"
        if free < self._disk:
            limit = f"{format_bytes(free)} that the disk can spare"
        if not plan.answers:
            self._console.warn(f"{self._label}: the teacher's answers alone take more than the {limit}: none are kept.")
            return
        told = f"the teacher's answers to {pluralize(plan.answers, 'example')}"
        if self._wanted and plan.layers:
            part = "all" if plan.layers == len(self._ends) else f"{plan.layers:,}"
            layers = ", ".join("embeddings" if layer < 0 else str(layer) for layer in sorted(self._wanted))
            told += f", and its layers ({layers}) of {part} of them"
        told += f" stay on disk between epochs, up to {format_bytes(plan.most)} of {limit}"
        if self._passed:
            told += f", for updates that look at no layers: {ON_GPU}"
        self._console.note(f"{self._label}: {told}")

    def _name(self, device: torch.device) -> str:
        """Tells this teacher's words about these examples from others; its weights are in the precision it runs in."""
        told = repr([self._teacher.identity(), self._examples.digest(), len(self._ends), device.type])
        return hashlib.sha256(told.encode()).hexdigest()[:16]


def _values(folder: Path, key: Key) -> Path:
    """Where one thing is kept."""
    name = key[1] if key[0] is None else f"layer {key[0]} {key[1]}"
    return folder / f"{name}.values"


def make_teacher_cache(
    settings: Distill, examples: Examples, task: TaskInfo, work: Path, console: Console, label: str
) -> TeacherCacheFactory | None:
    """Has what a teacher says of these examples stay on disk, where the recipe wants that.

    None where it would be for nothing: no loss asks, no example comes twice, several machines share no disk, or all
    that asks looks at layers that are not kept. On a GPU they are kept only where the recipe tells a size itself: there
    to ask the teacher again may be faster than to read them.
    """
    plan, asking = (
        UpdateSchedule(examples.lengths, settings, 0),
        [stage for stage in loss_phases(settings) if stage.asks_teacher],
    )
    once = plan.total <= plan.per_epoch and settings.restarts == 1
    if not settings.cache or once or not asking:
        return None
    processes, budget = Processes(), settings.cache
    on_gpu = processes.device.type == "cuda"
    layers = budget.disk is not None or not on_gpu
    if not layers and all(stage.sees_layers for stage in asking):
        console.note(f"{label}: the teacher is asked in every epoch: {ON_GPU}")
        return None
    if int(os.environ.get("LOCAL_WORLD_SIZE", processes.count)) != processes.count:
        console.note(f"{label}: several machines share no disk, so what the teacher says is not kept")
        return None
    return lambda teacher, wanted: CachedTeacher(
        teacher,
        wanted,
        examples,
        work / FOLDER,
        budget.limit,
        of_pieces=kind_of(task).problem in OF_PIECES,
        layers=layers,
        compiles=settings.compile and on_gpu,
        console=console if processes.is_main else None,
        label=label,
    )
