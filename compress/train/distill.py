"""DistillObjective: a student learns from its teacher. Recovery after pruning is the same with a pruned student."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.data.tokenizer import TextTokenizer
from compress.model_info import LayerMap, PruningInfo, TaskInfo, find_info
from compress.model_shapes import changes_shape
from compress.models.embedding_model import embedding_size
from compress.models.encoder_parts import shape_of
from compress.models.load_save import fit_head, load_model, load_tokenizer
from compress.models.student.build_student import build_student, initialization_of, resolve_source
from compress.recipe.training_schema import Distill, Student
from compress.tasks.base import Row
from compress.train.core import training_data
from compress.train.core.distributed import Processes
from compress.train.core.seed_restarts import delete_work_files, reset_weights_builder, train_best
from compress.train.core.train_state import TrainResult
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.distillation.activation_importance import importance_for_student
from compress.train.distillation.augment import augmented_rows, check_unlabelled
from compress.train.distillation.cka_layer_map import LayerMapBuilder
from compress.train.distillation.cross_encoder_scores import add_cross_encoder_scores
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.distillation.embedding_projection import match_embedding_width, match_student_embedding
from compress.train.distillation.layer_map import Pairs
from compress.train.distillation.layer_pairs import check_local_batch_size
from compress.train.distillation.sanity_warnings import (
    describe_init,
    settings_warnings,
    settings_warnings_start,
    settings_warnings_teachers,
    settings_warnings_updates,
)
from compress.train.distillation.teachers import Teacher, TeacherCacheFactory, as_teacher, further_teachers
from compress.train.distillation.tokenizer_checks import STUDENT_HINT, check_embedding_counts, check_same_vocabulary
from compress.train.objective import Objective
from compress.train.save_trained import TrainedModel, save_trained_model
from compress.train.teacher_cache.cache import make_teacher_cache


@dataclass(frozen=True)
class DistillData:
    """The rows that a student learns from, and those by which the best of its weights are chosen."""

    train: Sequence[Row]
    select: Sequence[Row]
    documents: Sequence[Row] = ()
    """Those among which the answers to select are searched, for kinds that search."""
    unlabelled: Sequence[Row] = ()
    """Rows without an answer but the teacher's."""


@dataclass(frozen=True)
class TrainContext:
    """Where a distillation works and speaks, and what it draws from."""

    work: Path
    console: Console
    seed: int
    track: str | None
    step: str

    def warn(self, doubts: Iterable[str]) -> None:
        """Tell what will run and nobody may have wished."""
        for doubt in doubts:
            self.console.warn(f"{self.step}: {doubt}")


@dataclass(frozen=True)
class DistillResult:
    """A student that has learnt."""

    model: PreTrainedModel
    result: TrainResult
    layer_map: LayerMap | None
    augmented: int
    """Rows that were made up for it."""


def distill(
    teacher: Path,
    student: Student,
    data: Path,
    settings: Distill | Literal[False],
    seed: int,
    work: Path,
    *,
    step: str = "distill",
    console: Console | None = None,
    track: str | None = None,
    unlabelled_rows: Sequence[Row] = (),
) -> TrainedModel:
    """Leave in ``work`` the model folder of a student, distilled from a teacher's folder on the rows of ``data``.

    With ``Student(source=FOLDER)`` a folder's own model is trained on, which is how a pruned one recovers. `False` for
    the settings leaves the student as it is built. ``unlabelled_rows``, as a kind's `asked` makes them, have no answer
    but the teacher's.
    """
    at = TrainContext(work, console or Console("quiet"), seed, track, step)
    roles, tokenizer = load_prepared(data), load_tokenizer(teacher)
    texts = DistillData(roles.rows("train"), roles.rows("select"), roles.documents("select"), unlabelled_rows)
    task = roles.info.task_info
    _check_tokenizer(tokenizer, student)
    own = load_model(teacher, task)
    tokens = training_data.fast_tokenizer(own.config, tokenizer)
    model = _in_reach(own, student, texts, task, tokens, at)
    start = initialization_of(model.config, student)
    at.warn(settings_warnings_start(start, student))
    further = further_teachers(settings, model, task, tokenizer) if settings else []
    importance = importance_for_student(student, model, texts.train, task, tokens, seed)

    def build(seed: int) -> PreTrainedModel:
        return build_student(model, student, task, seed=seed, importance=importance)

    if settings is False:
        return save_trained_model(build(seed), tokenizer, work, step, data, pruning=_pruning_of(student))
    taught = _teach(build, [(model, 1.0), *further], texts, settings, task, tokens, at)
    who = "the pruned model" if step == "recover" else "a student"
    shapes = f"{who} of {shape_of(taught.model).text} from a teacher of {shape_of(model).text}"
    at.console.note(f"{step}: {shapes}{describe_init(start)}")
    return save_trained_model(
        taught.model,
        tokenizer,
        work,
        step,
        data,
        taught.result,
        taught.layer_map,
        taught.augmented,
        _pruning_of(student),
    )


def distill_from_model(
    teacher: PreTrainedModel | Sequence[tuple[PreTrainedModel, float]],
    student: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train_rows: Sequence[Row],
    select_rows: Sequence[Row],
    task: TaskInfo,
    settings: Distill | None = None,
    *,
    seed: int = 0,
    work: Path | None = None,
    console: Console | None = None,
    track: str | None = None,
    unlabelled_rows: Sequence[Row] = (),
) -> PreTrainedModel:
    """Train ``student`` after ``teacher``, both with a head for ``task``, and return it with its best weights.

    Several teachers come with a weight each: their answers are averaged, and layers are those of the first.
    ``build_student`` makes a student of any shape. With a ``work`` folder this goes on from there after a kill.
    ``unlabelled_rows``, as a kind's `asked` makes them, have no answer but the teacher's.
    """
    settings = settings or Distill()
    (first, weight), *others = [(teacher, 1.0)] if isinstance(teacher, PreTrainedModel) else teacher
    models = [first, *(model for model, _ in others), student]
    for model in models:
        fit_head(model, task)
    check_embedding_counts(models, tokenizer)
    tokens = training_data.fast_tokenizer(first.config, tokenizer)
    first = match_embedding_width(student, first, train_rows, task, tokens)
    teachers = [(first, weight), *others, *further_teachers(settings, first, task, tokenizer)]
    texts = DistillData(train_rows, select_rows, unlabelled=unlabelled_rows)
    with ExitStack() as stack:
        work = work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        at = TrainContext(work, console or Console("quiet"), seed, track, "distill")
        taught = _teach(reset_weights_builder(student, settings), teachers, texts, settings, task, tokens, at)
        delete_work_files(work)
    return taught.model


def _teach(
    build: Callable[[int], PreTrainedModel],
    teachers: Sequence[tuple[PreTrainedModel, float]],
    texts: DistillData,
    settings: Distill,
    task: TaskInfo,
    tokens: TextTokenizer,
    at: TrainContext,
) -> DistillResult:
    """Train what ``build`` makes to say and see what its teachers do; layers and their map are those of the first."""
    at.warn([*settings_warnings(settings), *settings_warnings_teachers(settings, texts.train, texts.unlabelled)])
    learnt, augmented = _lessons(texts, settings, task, tokens, at)
    at.warn(settings_warnings_updates(settings, UpdateSchedule(learnt.train.lengths, settings, at.seed).total))
    maps = LayerMapBuilder(teachers[0][0], settings, learnt.train, at.console, at.step)
    keep = make_teacher_cache(settings, learnt.train, task, at.work, at.console, at.step)
    model, result = train_best(
        build,
        make_distill_objective(as_teacher(teachers), settings, task, maps, keep),
        learnt,
        settings,
        seed=at.seed,
        work=at.work,
        console=at.console,
        track=at.track,
        label=at.step,
    )
    return DistillResult(model, result, maps.last, augmented)


def _lessons(
    texts: DistillData, settings: Distill, task: TaskInfo, tokens: TextTokenizer, at: TrainContext
) -> tuple[training_data.TrainingData, int]:
    """All rows as they are learnt from, encoded, and how many of them were made up."""
    check_unlabelled(settings, len(texts.unlabelled) > 0)
    check_local_batch_size(settings, Processes().count)
    train = add_cross_encoder_scores(texts.train, settings, task, at.work, at.console)
    augmented = augmented_rows(texts.train, settings.augment, task, at.seed, at.work, at.console)
    others = {"unlabelled": texts.unlabelled, "augmented": augmented}
    learnt = training_data.from_rows(train, texts.select, task, tokens, at.console, texts.documents, **others)
    return learnt, len(augmented)


def _in_reach(
    teacher: PreTrainedModel,
    student: Student,
    texts: DistillData,
    task: TaskInfo,
    tokens: TextTokenizer,
    at: TrainContext,
) -> PreTrainedModel:
    """The teacher as the student can follow it: where its embeddings are wider, the main directions of them."""
    found = match_student_embedding(student, teacher, texts.train, task, tokens)
    if found is not teacher:
        size = embedding_size(found)
        at.console.note(f"{at.step}: of the teacher's embeddings the {size} principal components are learnt")
    return found


def make_distill_objective(
    teacher: PreTrainedModel | Teacher,
    settings: Distill,
    task: TaskInfo,
    maps: Callable[[PreTrainedModel, int], Pairs | None] | None = None,
    keep: TeacherCacheFactory | None = None,
) -> Callable[[PreTrainedModel, int], Objective]:
    """Makes the distillation objective of each student that is trained.

    ``maps`` says which layers it follows, and ``keep`` has what its teacher says stay on disk.
    """

    def make(student: PreTrainedModel, seed: int) -> Objective:
        pairs = maps(student, seed) if maps else None
        return DistillObjective(student, teacher, settings, task, seed, pairs=pairs, keep=keep)

    return make


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, student: Student) -> None:
    """Both models read the same pieces, so a student's checkpoint must have been trained on them."""
    if student.source is not None:
        found = load_tokenizer(resolve_source(student.source), student.revision)
        check_same_vocabulary(f"the student {student.source}", found, tokenizer, STUDENT_HINT)


def _pruning_of(student: Student) -> PruningInfo | None:
    """Return what pruning kept of a student that is a checkpoint as it is; None where it was not pruned."""
    source = resolve_source(student.source) if student.source and not changes_shape(student) else None
    info = find_info(source) if isinstance(source, Path) else None
    return info.pruning if info else None
