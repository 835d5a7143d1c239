"""Distillation of a student from its teacher; recovery after pruning is the same with a pruned student."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.batch_arrays import LABELLED
from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.data.tokenizer import TextTokenizer
from compress.model_folder.model_history import LayerMap, PruningInfo
from compress.model_folder.model_info import TaskInfo, find_info
from compress.model_shapes import changes_shape
from compress.models.embedding_model import embedding_size
from compress.models.encoder_parts import shape_of
from compress.models.fetch import fetch
from compress.models.heads import EMBEDDING, head_for
from compress.models.load_save import fit_head, has_task_head, load_model, load_tokenizer, read_config
from compress.models.student.build_student import build_student, initialization_of
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.storage.file_names import expanded_user
from compress.tasks.base import Row
from compress.train.core import training_data
from compress.train.core.auto_settings import resolve_auto
from compress.train.core.checkpoints import TrainResult
from compress.train.core.distributed import current_processes
from compress.train.core.seed_restarts import (
    TrainContext,
    Within,
    context_in_memory,
    reset_weights_builder,
    train_best,
)
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.distillation.activation_importance import count_pieces, importance_for_student
from compress.train.distillation.augment import augmented_rows, check_unlabelled
from compress.train.distillation.cka_layer_map import LayerMapBuilder
from compress.train.distillation.cross_encoder_scores import add_cross_encoder_scores
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.distillation.embedding_projection import match_embedding_width, match_student_embedding
from compress.train.distillation.layer_pairs import check_local_batch_size
from compress.train.distillation.phases import settings_warnings, settings_warnings_start, settings_warnings_updates
from compress.train.distillation.teachers import (
    STUDENT_HINT,
    Teacher,
    check_embedding_counts,
    further_teachers,
    ids_in_teacher,
)
from compress.train.label_scale import label_scale
from compress.train.objective import class_weights
from compress.train.save_trained import TrainedModel, save_trained_model
from compress.train.teacher_cache.cache import make_teacher_cache


@dataclass(frozen=True)
class DistillData:
    """The rows for training, and those on which the best weights are selected."""

    train: Sequence[Row]
    select: Sequence[Row]
    documents: Sequence[Row] = ()
    """Documents that queries of select are searched in, for retrieval."""
    unlabelled: Sequence[Row] = ()
    """Rows without labels, trained on the teacher's outputs."""


def distill(
    teacher: Path,
    student: Student,
    data: Path,
    settings: Distill | Literal[False],
    seed: int,
    work: Path,
    *,
    step: str = "distill",
    recovers: bool = False,
    console: Console | None = None,
    track: str | None = None,
    unlabelled_rows: Sequence[Row] = (),
    within: Within = nullcontext,
) -> TrainedModel:
    """Write the model folder of a student, distilled from a teacher's folder on the rows of ``data``, to ``work``.

    With ``Student(source=FOLDER)`` the model of a folder is trained further; if it ``recovers`` from a cut, the layer
    map leaves out layers that were dropped. With `False` for the settings the student is not trained. Rows of
    ``unlabelled_rows``, as `Kind.from_input` returns them, are trained on the teacher's outputs. ``within`` makes the
    context in which the student is trained and evaluated.
    """
    context = TrainContext(step, seed, work, console or Console("quiet"), track, within)
    roles, tokenizer = load_prepared(data), load_tokenizer(teacher)
    rows = DistillData(roles.rows("train"), roles.rows("select"), roles.documents("select"), unlabelled_rows)
    task = roles.info.task_info
    own = load_tokenizer(student.source, student.revision) if student.source else tokenizer
    teacher_ids = ids_in_teacher(f"the student {student.source}", own, tokenizer, STUDENT_HINT)
    original = load_model(teacher, task)
    tokens = training_data.fast_tokenizer(original.config, tokenizer)
    model = match_student_embedding(student, original, rows.train, task, tokens)
    config = read_config(fetch(student.source, student.revision)) if student.source else model.config
    if teacher_ids is not None:
        tokens = training_data.fast_tokenizer(config, own)
    if model is not original:
        size = embedding_size(model)
        context.console.note(f"{step}: the teacher's embeddings are reduced to {size} principal components")
    start = initialization_of(model.config, student)
    context.warn(settings_warnings_start(start, student))
    further = further_teachers(settings, model, task, tokenizer) if settings else []
    importance = importance_for_student(student, model, rows.train, task, tokens, seed)
    vocabulary = int(config.vocab_size)
    counts = count_pieces(vocabulary, rows.train, task, tokens) if student.factors else None

    def build(seed: int) -> PreTrainedModel:
        return build_student(model, student, task, seed=seed, importance=importance, piece_counts=counts)

    tokenizer = tokenizer if teacher_ids is None else own
    kept = _kept_of(student)
    if settings is False:
        return save_trained_model(build(seed), tokenizer, work, step, data, **kept)
    is_complete = student.source is None or head_for(task) is EMBEDDING
    has_head = start != "random" and (is_complete or has_task_head(str(student.source), task, student.revision))
    recovered = kept.get("pruning") if recovers else None
    trained, result, layer_map, augmented = train_student(
        build, [(model, 1.0), *further], rows, settings, task, tokens, context, has_head, recovered, teacher_ids
    )
    initialised = f"; initialised: {start}" if start else ""
    context.console.note(f"{step}: {shape_of(trained).text} from a teacher of {shape_of(model).text}{initialised}")
    return save_trained_model(trained, tokenizer, work, step, data, result, layer_map, augmented, **kept)


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
    documents: Sequence[Row] = (),
    pruning: PruningInfo | None = None,
    student_tokenizer: PreTrainedTokenizerBase | None = None,
    within: Within = nullcontext,
) -> PreTrainedModel:
    """Distil ``teacher`` into ``student``, both with a head for ``task``, and return it with its best weights.

    Several teachers have a weight each: their outputs are averaged, and layers are those of the first.
    ``build_student`` creates a student of any shape. With a ``work`` folder a killed training resumes from there.
    ``unlabelled_rows``, as `Kind.from_input` returns them, are trained on the teacher's outputs. ``documents``: those
    that queries of ``select_rows`` are searched in, for retrieval. ``pruning``: of a student that recovers from it, by
    which the layer map leaves out layers that were dropped. A student whose vocabulary is a part of the teacher's has a
    ``student_tokenizer``; ``tokenizer`` is the teacher's. ``within`` makes the context in which the student is trained
    and evaluated.
    """
    settings = settings or Distill()
    (first, weight), *others = [(teacher, 1.0)] if isinstance(teacher, PreTrainedModel) else teacher
    models = [first, *(model for model, _ in others), student]
    for model in models:
        fit_head(model, task)
    check_embedding_counts(models, tokenizer, student_tokenizer)
    own = student_tokenizer or tokenizer
    teacher_ids = ids_in_teacher("the student", own, tokenizer, STUDENT_HINT)
    tokens = training_data.fast_tokenizer(first.config, tokenizer)
    first = match_embedding_width(student, first, train_rows, task, tokens)
    teachers = [(first, weight), *others, *further_teachers(settings, first, task, tokenizer)]
    if teacher_ids is not None:
        tokens = training_data.fast_tokenizer(student.config, own)
    rows = DistillData(train_rows, select_rows, documents, unlabelled_rows)
    build = reset_weights_builder(student, settings)
    with context_in_memory("distill", seed, work, console, track, within) as context:
        options: dict[str, Any] = {"pruning": pruning, "teacher_ids": teacher_ids}
        return train_student(build, teachers, rows, settings, task, tokens, context, **options)[0]


def train_student(
    build: Callable[[int], PreTrainedModel],
    teachers: Sequence[tuple[PreTrainedModel, float]],
    rows: DistillData,
    settings: Distill,
    task: TaskInfo,
    tokens: TextTokenizer,
    context: TrainContext,
    start_competes: bool = True,
    pruning: PruningInfo | None = None,
    teacher_ids: NDArray[np.int64] | None = None,
    losses: Callable[..., DistillObjective] = DistillObjective,
) -> tuple[PreTrainedModel, TrainResult, LayerMap | None, int]:
    """Train the student that ``build`` returns; layers and the layer map are those of the first teacher.

    Also returns what compress.json records: the result, the layer map and the number of augmented rows.
    """
    settings = _count_layers_left(settings, pruning)
    context.warn(settings_warnings(settings))
    check_unlabelled(settings, len(rows.unlabelled) > 0)
    work, console = context.work, context.console
    train = add_cross_encoder_scores(rows.train, settings, task, work, console)
    augmented = augmented_rows(rows.train, settings.augment, task, context.seed, work, console)
    others: dict[str, Any] = {"unlabelled": rows.unlabelled, "augmented": augmented, "teacher_ids": teacher_ids}
    encoded = training_data.from_rows(train, rows.select, task, tokens, console, rows.documents, **others)
    resolved = resolve_auto(settings, encoded.facts())[0]  # all but the rate, which nothing here depends on
    check_local_batch_size(resolved, current_processes().count)
    updates = UpdateSchedule(encoded.train.lengths, resolved, context.seed).total
    context.warn(settings_warnings_updates(resolved, updates))
    maps = LayerMapBuilder(teachers[0][0], settings, encoded.train, console, context.step, pruning)
    cache = make_teacher_cache(resolved, encoded.train, task, work, console, context.step)
    teacher, fixed = Teacher(teachers), {"cache": cache, **_of_labels(settings, rows.train, task)}

    def objective(student: PreTrainedModel, seed: int) -> DistillObjective:
        return losses(student, teacher, settings, task, seed, pairs=maps(student, seed), **fixed)

    model, result = train_best(build, objective, encoded, settings, context, start_competes)
    return model, result, maps.last, len(augmented)


def _of_labels(settings: Distill, rows: Sequence[Row], task: TaskInfo) -> dict[str, Any]:
    """Return what an objective knows of the labels of train: the weights of classes, the scale of numbers."""

    def labelled() -> Iterator[Row]:
        return (row for row in rows if row.get(LABELLED, True))  # no loss reads the labels of others

    return {"weights": class_weights(settings, labelled(), task), "scale": label_scale(labelled(), task)}


def _kept_of(student: Student) -> dict[str, Any]:
    """Return what pruning kept of a student that is a checkpoint: of its vocabulary, and of its layers if it has them.

    These are arguments of `save_trained_model`.
    """
    info = find_info(expanded_user(student.source)) if student.source else None
    if info is None:
        return {}
    return {"vocabulary": info.vocabulary, "pruning": None if changes_shape(student) else info.pruning}


def _count_layers_left(settings: Distill, pruning: PruningInfo | None) -> Distill:
    """Return settings in which `freeze` counts the layers that pruning left of those it named."""
    if pruning is None or not isinstance(settings.freeze, int) or all(pruning.left):
        return settings
    return settings.model_copy(update={"freeze": sum(pruning.left[: settings.freeze])})
