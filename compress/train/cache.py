"""What a teacher says stays on disk between epochs, so that from the second one on it need not be asked again.

A teacher never changes: of the same text it says the same every time, up to the rounding that another padding brings.
Its answers are always worth keeping, a few numbers an example; hidden states, queries, keys and values are kept of as
many examples as the recipe's disk budget holds, counted from the first. What stands is read. Where any example of a
batch is to be kept and is not here yet, the whole batch is run, and all is kept that any later phase will ask; else
those examples alone are run that are never kept. So a training that is killed and goes on asks for the same batches,
and ends in the same bits.

Values reach their files before the byte that says so. A power cut may still keep the byte and lose the values, so what
was written before the machine was last started is not trusted, and such a cache begins anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from compress.console import Console
from compress.errors import counted
from compress.folder import TaskInfo
from compress.models.observe import Seen, Wanted
from compress.recipe.training import Distill
from compress.tasks import kind_of
from compress.train.cache_plan import CachePlan, Key
from compress.train.kept import Form, Kept, Marks, Places
from compress.train.objective import Batch, Examples
from compress.train.plan import Plan
from compress.train.processes import Processes
from compress.train.restarts import FOLDER
from compress.train.teachers import Answers, Teacher

RESERVE = 2**30
"""Bytes of a disk that stay free for checkpoints and for others."""

MARKS = "stands"
"""The file that tells which examples are there."""

OF_PIECES = frozenset({"token_classification", "question_answering"})
"""The problems whose answers are one for each piece."""

Keep = Callable[[Teacher, Wanted], Teacher]
"""A teacher, and all that will ever be asked of its layers, becomes one whose words stay on disk."""

Said = dict[Key, Tensor]
"""All that a teacher says of a batch; each (examples, [pieces,] ...)."""


class CachedTeacher:
    """Says what a teacher says, and asks it once for each example as long as the disk holds the answer."""

    def __init__(
        self,
        teacher: Teacher,
        wanted: Wanted,
        lengths: Places,
        work: Path,
        disk: int,
        *,
        digest: str = "",
        of_pieces: bool = False,
        console: Console | None = None,
        label: str = "distill",
    ) -> None:
        """Keep in a folder of ``work`` what is said of examples of these ``lengths``; a later `index` is never kept.

        ``wanted`` is all that will ever be asked of layers, ``disk`` the most bytes, ``digest`` stands for what the
        examples hold, and ``of_pieces`` tells whether answers are one for each piece.
        """
        self._teacher = teacher
        self._wanted = wanted
        self._lengths = lengths
        self._work = work
        self._disk = disk
        self._digest = digest
        self._of_pieces = of_pieces
        self._console = console or Console("quiet")
        self._label = label
        self._folder: Path | None = None
        self._kept: dict[Key, Kept] = {}
        self._marks: Marks
        self.spared = 0.0
        """Seconds that the teacher took for words that are kept."""

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

    def __call__(self, batch: Batch, wanted: Wanted) -> tuple[Answers, Seen]:
        """From disk what stands there, from the teacher what does not."""
        if self._folder is None:
            self._open(batch)
        keys = self._keys(wanted)
        if not keys:
            return self._teacher(batch, wanted)
        index: Places = batch["index"].cpu().numpy()
        new = self._marks.lack(index)
        run = self._to_run(index, new, keys)
        said: Said = {}
        if len(run):
            started = time.monotonic()
            said = flat(*self._teacher(self._some(batch, run), self._wanted if new.any() else wanted))
            self._keep(index, new, said)
            self.spared += (time.monotonic() - started) * float((self._marks.stand(index) & new)[run].mean())
        if not self._kept:  # the disk is full, and all of the batch was run
            return unflat({key: said[key] for key in keys}, wanted)
        stand = self._marks.stand(index)
        return unflat({key: _whole(key, self._kept[key], index, stand, run, said, batch) for key in keys}, wanted)

    def _keys(self, wanted: Wanted) -> list[Key]:
        """All that is asked; nothing where some of it has no file."""
        answers: list[Key] = [key for key in self._kept if key[0] is None]
        layers: list[Key] = [(layer, part) for layer, parts in wanted.items() for part in sorted(parts)]
        return [*answers, *layers] if answers and self._kept.keys() >= set(layers) else []

    def _to_run(self, index: Places, new: NDArray[np.bool_], keys: Sequence[Key]) -> Places:
        """Where in the batch the examples stand that the teacher must be asked about."""
        if new.any():
            return np.arange(len(index))
        return np.flatnonzero(~np.all([self._kept[key].has_place(index) for key in keys], axis=0))

    def _some(self, batch: Batch, run: Places) -> Batch:
        """A batch of some of the examples, as wide as the longest of them."""
        shape = batch["input_ids"].shape
        if len(run) == shape[0]:
            return batch
        chosen = torch.from_numpy(run).to(batch["input_ids"].device)
        longest = int(batch["attention_mask"][chosen].sum(dim=1).max())
        of_examples = {name: tensor[chosen] for name, tensor in batch.items() if tensor.shape[:1] == shape[:1]}
        return {
            name: tensor[:, :longest] if batch[name].shape == shape else tensor for name, tensor in of_examples.items()
        }

    def _keep(self, index: Places, new: NDArray[np.bool_], said: Said) -> None:
        """Put all that has a place where it belongs, and then mark that it stands."""
        if not new.any():
            return
        try:
            for key, kept in self._kept.items():
                rows = np.flatnonzero(new & kept.has_place(index))
                kept.put(index[rows], said[key][torch.from_numpy(rows).to(said[key].device)])
            self._marks.add(index[new])
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Go on without a cache, and give its room back to the checkpoints."""
        self._kept = {}
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._console.warn(
            f"{self._label}: what the teacher says cannot be kept ({error.strerror or error}): "
            "the training goes on without, and asks it in every epoch."
        )

    def _open(self, batch: Batch) -> None:
        """Go on with the files of this teacher and these examples, or begin them."""
        folder = self._folder = self._work / f"teacher-{self._name(batch)}"
        processes = Processes()
        try:
            if processes.is_main and self._plan(folder) is None:
                self._begin(folder, batch)
        except OSError as error:
            self._give_up(error)
        processes.wait()
        plan = self._plan(folder)
        try:
            if plan is not None and plan.answers:
                self._marks = Marks(folder / MARKS, plan.answers)
                self._kept = {key: self._opened(folder, plan, key) for key in plan.forms}
        except OSError as error:
            self._give_up(error)

    def _plan(self, folder: Path) -> CachePlan | None:
        """What stands there, if it holds all that will be asked (another student may follow other layers)."""
        plan = CachePlan.read(folder, self._disk)
        asked = {(layer, part) for layer, parts in self._wanted.items() for part in parts}
        return plan if plan is not None and asked <= plan.forms.keys() else None

    def _opened(self, folder: Path, plan: CachePlan, key: Key) -> Kept:
        name = key[1] if key[0] is None else f"layer {key[0]} {key[1]}"
        return Kept(folder / f"{name}.values", plan.forms[key], self._lengths[: plan.count(key)])

    def _begin(self, folder: Path, batch: Batch) -> None:
        """Look at what the teacher says of one example, and plan."""
        shutil.rmtree(folder, ignore_errors=True)
        said = flat(*self._teacher(self._some(batch, np.zeros(1, np.int64)), self._wanted))
        forms = {key: Form.of(tensor, key[0] is not None or self._of_pieces) for key, tensor in said.items()}
        folder.mkdir(parents=True)
        free = max(0, shutil.disk_usage(folder).free - RESERVE)
        plan = CachePlan.within(min(self._disk, free), forms, self._lengths)
        self._tell(plan, free)
        plan.write(folder, self._disk)

    def _tell(self, plan: CachePlan, free: int) -> None:
        """One line about what is kept."""
        room = f"{size(self._disk)} of distill.cache.disk"
        if free < self._disk:
            room = f"{size(free)} that the disk can spare"
        if not plan.answers:
            self._console.warn(f"{self._label}: the teacher's answers alone take more than the {room}: none are kept.")
            return
        told = f"the teacher's answers to {counted(plan.answers, 'example')}"
        if self._wanted:
            part = "all" if plan.layers == len(self._lengths) else f"{plan.layers:,}"
            layers = ", ".join("embeddings" if layer < 0 else str(layer) for layer in sorted(self._wanted))
            told += f", and its layers ({layers}) of {part} of them"
        self._console.note(f"{self._label}: {told} stay on disk between epochs, up to {size(plan.most)} of {room}")

    def _name(self, batch: Batch) -> str:
        """Tells this teacher's words about these examples from others; the precision it speaks in is a part of that."""
        device = batch["input_ids"].device.type
        precision = str(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else "as it is"
        told = repr([self._teacher.identity(), self._digest, len(self._lengths), device, precision])
        return hashlib.sha256(told.encode()).hexdigest()[:16]


def keeper(
    settings: Distill, examples: Examples, task: TaskInfo, work: Path, console: Console, label: str
) -> Keep | None:
    """Has what a teacher says of these examples stay on disk, where the recipe wants that.

    None where it would be for nothing: no example comes twice, or several machines share no disk.
    """
    plan = Plan(examples.lengths, settings, 0)
    if not settings.cache or (plan.total <= plan.per_epoch and settings.restarts == 1):
        return None
    processes, budget = Processes(), settings.cache.disk
    if int(os.environ.get("LOCAL_WORLD_SIZE", processes.count)) != processes.count:
        console.note(f"{label}: several machines share no disk, so what the teacher says is not kept")
        return None
    return lambda teacher, wanted: CachedTeacher(
        teacher,
        wanted,
        examples.pieces[: examples.lasting],
        work / FOLDER,
        budget,
        digest=examples.digest(),
        of_pieces=kind_of(task).problem in OF_PIECES,
        console=console if processes.is_main else None,
        label=label,
    )


def flat(answers: Answers, seen: Seen) -> Said:
    """Everything under its key, with examples and pieces in front."""
    said: Said = {(None, name): tensor for name, tensor in answers.items()}
    for layer, parts in seen.items():
        for part, tensor in parts.items():
            said[layer, part] = tensor if part == "hidden" else tensor.transpose(1, 2)
    return said


def unflat(said: Said, wanted: Wanted) -> tuple[Answers, Seen]:
    """The opposite of `flat`, for what is wanted."""
    answers = {name: tensor for (layer, name), tensor in said.items() if layer is None}
    seen: Seen = {layer: {} for layer in wanted}
    for (layer, part), tensor in said.items():
        if layer is not None:
            seen[layer][part] = tensor if part == "hidden" else tensor.transpose(1, 2)
    return answers, seen


def _whole(
    key: Key, kept: Kept, index: Places, stand: NDArray[np.bool_], run: Places, said: Said, batch: Batch
) -> Tensor:
    """One thing about all of a batch: read where it stands, as it was just said where it has no place."""
    known = stand & kept.has_place(index)
    if not known.any():
        return said[key]
    width, device = batch["input_ids"].shape[1], batch["input_ids"].device
    whole = torch.from_numpy(kept.get(index, known, width)).view(kept.form.torch_dtype).to(device)
    fresh = np.flatnonzero(~known[run])
    if len(fresh):
        values = said[key][torch.from_numpy(fresh).to(device)]
        rows = torch.from_numpy(run[fresh]).to(device)
        if kept.form.pieces:
            whole[rows, : values.shape[1]] = values
        else:
            whole[rows] = values
    return whole


def size(count: int) -> str:
    """Bytes for people."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count} bytes"
