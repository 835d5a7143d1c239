"""A shared student: one training for many sizes, of which parts are taken out and trained on."""

import copy
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel

from compress.console import Console
from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.data.splits.row_store import SelectedRows
from compress.data.tokenizer import TextTokenizer
from compress.errors import pluralize
from compress.losses.tensor_ops.row_groups import GroupedBatch
from compress.model_folder.model_info import FolderInfo, TaskInfo, read_info
from compress.model_shapes import parts_of
from compress.models.encoder_parts import shape_of
from compress.models.load_save import load_model, load_tokenizer, save_model
from compress.models.student.parts import order_units, run_part, take_part
from compress.recipe.distill_schema import Distill, SharedDistill
from compress.recipe.student_schema import Part, Student, held_out_rows
from compress.tasks import kind_of
from compress.tasks.base import Row
from compress.train.core import training_data
from compress.train.core.distributed import current_processes, returned
from compress.train.core.seed_restarts import TrainContext
from compress.train.distill import DistillData, distill, distill_from_model, train_student
from compress.train.distillation.activation_importance import count_pieces, sample_importance
from compress.train.distillation.distill_objective import BatchView, DistillObjective
from compress.train.distillation.embedding_projection import match_embedding_width
from compress.train.distillation.teachers import STUDENT_HINT, Teacher, further_teachers, ids_in_teacher
from compress.train.objective import Batch, Losses, with_label_weights
from compress.train.save_trained import TrainedModel, save_trained_model

FEW_ROWS = 100
"""Rows below which parts can hardly be ranked: one row is a point."""


def train_shared(
    teacher: Path,
    start: Path,
    data: Path,
    settings: SharedDistill,
    seed: int,
    work: Path,
    *,
    step: str = "shared",
    console: Console | None = None,
    track: str | None = None,
    unlabelled_rows: Sequence[Row] = (),
) -> TrainedModel:
    """Write the model folder of a student whose parts learn a teacher's outputs together, to ``work``.

    It begins as the model of ``start``.
    """
    context = TrainContext(step, seed, work, console or Console("quiet"), track)
    roles, tokenizer, own = load_prepared(data), load_tokenizer(teacher), load_tokenizer(start)
    task, every = roles.info.task_info, roles.rows("train")
    model, student = load_model(teacher, task), load_model(start, task)
    tokens = training_data.fast_tokenizer(student.config, own)
    model = match_embedding_width(student, model, every, task, training_data.fast_tokenizer(model.config, tokenizer))
    order_units(student, sample_importance(student, every, task, tokens, seed))
    seen = np.setdiff1d(np.arange(len(every)), held_out(len(every), seed))
    trained, result, _, augmented = train_student(
        lambda _: copy.deepcopy(student),
        [(model, 1.0), *further_teachers(settings, model, task, tokenizer)],
        DistillData(SelectedRows(every, seen), (), unlabelled=unlabelled_rows),
        settings,
        task,
        tokens,
        context,
        start_competes=False,
        teacher_ids=ids_in_teacher("the shared student", own, tokenizer, STUDENT_HINT),
        losses=SharedObjective,
    )
    count = len(parts_of(shape_of(trained)))
    context.console.note(f"{step}: {shape_of(trained).text}, trained for {count} parts")
    vocabulary = read_info(start).vocabulary
    return save_trained_model(trained, own, work, step, data, result, augmented=augmented, vocabulary=vocabulary)


def distill_part(
    teacher: Path,
    shared: Path,
    part: Part,
    data: Path,
    settings: Distill,
    seed: int,
    work: Path,
    *,
    step: str,
    **options: Any,
) -> TrainedModel:
    """Write the model folder of a part of the shared student, trained on by itself, to ``work``.

    It has the pieces of ``shared``. ``options``: as of `distill`.
    """
    info = read_info(shared)
    with tempfile.TemporaryDirectory() as folder:
        taken = _taken(shared, part, load_prepared(data))
        kept = FolderInfo(step=step, made_by=info.made_by, task=info.task, vocabulary=info.vocabulary)
        save_model(taken, load_tokenizer(shared), Path(folder), kept)
        return distill(teacher, Student(source=folder), data, settings, seed, work, step=step, **options)


def try_part(
    teacher: Path,
    shared: Path,
    part: Part,
    data: Path,
    settings: Distill,
    seed: int,
    work: Path,
    **options: Any,
) -> float:
    """Return what a part scores that is distilled with these settings, on rows that no training of it saw.

    ``options``: as of `distill_from_model`.
    """
    task, roles = read_info(shared).task, load_prepared(data)
    assert task is not None
    every = roles.rows("train")
    held, tokens = held_out(len(every), seed), TextTokenizer.load(shared)
    rows, documents = compared_rows(every, task, seed)
    trained = distill_from_model(
        load_model(teacher, task),
        _taken(shared, part, roles),
        load_tokenizer(teacher),
        SelectedRows(every, np.setdiff1d(np.arange(len(every)), held)),
        rows,
        task,
        settings,
        seed=seed,
        work=work,
        student_tokenizer=load_tokenizer(shared),
        documents=documents,
        **options,
    )
    score = training_data.make_scorer(rows, task, tokens, documents)
    with returned(trained):
        nn.Module.to(trained, current_processes().device)
        return score(training_data.predict_function(trained.train(False)))


def _taken(shared: Path, part: Part, roles: PreparedData) -> PreTrainedModel:
    """Return a part as a model of its own; factors of word vectors are closest for the pieces that train has."""
    task = roles.info.task_info
    model = load_model(shared, task)
    if part.factors is None:
        return take_part(model, part)
    tokens = training_data.fast_tokenizer(model.config, load_tokenizer(shared))
    return take_part(model, part, count_pieces(int(model.config.vocab_size), roles.rows("train"), task, tokens))


def held_out(rows: int, seed: int) -> NDArray[np.int64]:
    """Return the numbers of the rows of train on which parts are compared, ascending."""
    return np.sort(np.random.default_rng([seed, rows]).permutation(rows)[: held_out_rows(rows)])


def compared_rows(train: Sequence[Row], task: TaskInfo, seed: int) -> tuple[Sequence[Row], Sequence[Row]]:
    """Return the rows on which parts are compared, in the form of select, and the documents in which they search.

    These are the ones that the rows themselves name: train has no others.
    """
    kind, rows = kind_of(task), SelectedRows(train, held_out(len(train), seed))
    if not kind.searches:
        return rows, ()
    numbers = dict[str, int]()

    def number(text: str) -> int:
        return numbers.setdefault(text, len(numbers))

    stored = [each for row in rows for each in kind.store_rows(row, number)]
    return stored, [{"document": text} for text in numbers]


class SharedObjective(DistillObjective):
    """The mean of the losses of several parts: the largest, the smallest, and some drawn anew for each update.

    Yu and Huang, "Universally Slimmable Networks and Improved Training Techniques", 2019 (arXiv:1903.05134), call it
    the sandwich rule: what the largest and the smallest reach bounds what lies between.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        teacher: Teacher,
        settings: SharedDistill,
        task: TaskInfo,
        seed: int,
        **options: Any,
    ) -> None:
        """Create the objective."""
        super().__init__(student, teacher, settings, task, seed, **options)
        smallest, *self._drawn_from, largest = parts_of(shape_of(student))
        self._bounds, self._between, self._parts = (largest, smallest), settings.between, (largest,)
        self._seed = seed

    def begin(self, progress: float, update: int = 0) -> None:
        """Draw the parts of an update, a pure function of the seed and its number."""
        super().begin(progress, update)
        draw = np.random.default_rng([self._seed, update])
        chosen = draw.choice(len(self._drawn_from), min(self._between, len(self._drawn_from)), replace=False)
        self._parts = (*self._bounds, *(self._drawn_from[index] for index in chosen))

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Compute each loss by its recipe key, as the mean over the parts; the teacher runs once."""
        batch = GroupedBatch(with_label_weights(batch, self.class_weights))
        targets, _ = self._teacher_outputs(batch)
        totals = dict.fromkeys(self.weights, torch.zeros((), device=model.device))
        for part in self._parts:
            view = BatchView(batch, run_part(model, batch, part), targets, {}, {}, {})
            for name, weight in self.weights.items():
                totals[name] = totals[name] + weight * self._loss(name, view) / len(self._parts)
        return totals


def compare_parts(shared: Path, data: Path, seed: int, console: Console) -> list[tuple[Part, float]]:
    """Return what every part of a shared student scores, as it is, on the rows that its training did not see."""
    roles, task = load_prepared(data), read_info(shared).task
    assert task is not None
    model = load_model(shared, task).train(False)
    rows, documents = compared_rows(roles.rows("train"), task, seed)
    if len(rows) < FEW_ROWS:
        console.warn(
            f"parts are compared on {pluralize(len(rows), 'row')} of train: chance decides between most of them."
        )
    score = training_data.make_scorer(rows, task, TextTokenizer.load(shared), documents)
    compared = list[tuple[Part, float]]()
    parts = parts_of(shape_of(model))
    with returned(model), console.progress(len(parts), "comparing parts", "parts") as progress:
        nn.Module.to(model, current_processes().device)
        for part in parts:
            run = training_data.predict_function(model, partial(run_part, part=part))
            compared.append((part, score(run)))
            progress.advance(1)
    return compared
