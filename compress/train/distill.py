"""Distillation: a student learns from its teacher. Recovery after pruning is the same with a pruned student."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.data.roles import load_roles
from compress.folder import TaskInfo
from compress.models.embedding import embedding_size
from compress.models.families import shape_of
from compress.models.folder import fit_head, load_model, load_tokenizer
from compress.models.shrink import build_student, place, start_of
from compress.recipe.training import Distill, Student
from compress.tasks.kind import Row
from compress.train import material
from compress.train.augment import augmented_rows, check_unanswered
from compress.train.cache import keeper
from compress.train.cross_scores import with_scores
from compress.train.distillation import Distillation
from compress.train.doubts import doubts_about, doubts_about_start, doubts_about_updates, started
from compress.train.importance import importance_for
from compress.train.layer_map import Pairs
from compress.train.likeness import LayerMaps
from compress.train.made import Made, save_made
from compress.train.objective import Objective
from compress.train.plan import Plan
from compress.train.restarts import forget, rewound, train_best
from compress.train.spaces import in_space_of, teacher_of
from compress.train.teachers import Keep, Teacher, as_teacher, further_teachers
from compress.train.vocabularies import OF_TEACHER, check_embeddings, check_same_pieces


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
) -> Made:
    """Leave in ``work`` the model folder of a student, distilled from a teacher's folder on the rows of ``data``.

    With ``Student(source=FOLDER)`` a folder's own model is trained on, which is how a pruned one recovers. `False` for
    the settings leaves the student as it is built.
    """
    console = console or Console("quiet")
    roles = load_roles(data)
    task = roles.info.task_info
    tokenizer = load_tokenizer(teacher)
    _check_tokenizer(tokenizer, student)
    own = load_model(teacher, task)
    tokens = material.tokens_of(own.config, tokenizer)
    train, select, documents = roles.rows("train"), roles.rows("select"), roles.documents("select")
    unlabelled = roles.unlabelled()
    model = teacher_of(student, own, train, task, tokens)
    if model is not own:
        console.note(f"{step}: of the teacher's embeddings the {embedding_size(model)} principal components are learnt")

    start = start_of(model.config, student)
    for doubt in (*doubts_about_start(start, student), *(doubts_about(settings) if settings else ())):
        console.warn(f"{step}: {doubt}")
    further = further_teachers(settings, model, task, tokenizer) if settings else []
    importance = importance_for(student, model, train, task, tokens, seed)

    def build(seed: int) -> PreTrainedModel:
        return build_student(model, student, task, seed=seed, importance=importance)

    if settings is False:
        return save_made(build(seed), tokenizer, work, step, data)
    check_unanswered(settings, bool(unlabelled))
    given = with_scores(train, settings, task, work, console)
    augmented = augmented_rows(train, settings.augment, task, seed, work, console)
    learnt = material.from_rows(
        given, select, task, tokens, console, documents, unlabelled=unlabelled, augmented=augmented
    )
    for doubt in doubts_about_updates(settings, Plan(learnt.train.lengths, settings, seed).total):
        console.warn(f"{step}: {doubt}")
    maps = LayerMaps(model, settings, learnt.train, console, step)
    teachers = as_teacher([(model, 1.0), *further])
    made, result = train_best(
        build,
        objective_of(teachers, settings, task, maps, keeper(settings, learnt.train, task, work, console, step)),
        learnt,
        settings,
        seed=seed,
        work=work,
        console=console,
        track=track,
        label=step,
    )
    console.note(f"{step}: a student of {shape_of(made).text} from a teacher of {shape_of(model).text}{started(start)}")
    return save_made(made, tokenizer, work, step, data, result, maps.last, len(augmented))


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
    console = console or Console("quiet")
    settings = settings or Distill()
    (first, weight), *others = [(teacher, 1.0)] if isinstance(teacher, PreTrainedModel) else teacher
    models = [first, *(model for model, _ in others), student]
    for model in models:
        fit_head(model, task)
    check_embeddings(models, tokenizer)
    with ExitStack() as stack:
        work = work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tokens = material.tokens_of(first.config, tokenizer)
        first = in_space_of(student, first, train_rows, task, tokens)
        others += further_teachers(settings, first, task, tokenizer)
        check_unanswered(settings, bool(unlabelled_rows))
        given = with_scores(train_rows, settings, task, work, console)
        augmented = augmented_rows(train_rows, settings.augment, task, seed, work, console)
        learnt = material.from_rows(
            given, select_rows, task, tokens, console, unlabelled=unlabelled_rows, augmented=augmented
        )
        updates = Plan(learnt.train.lengths, settings, seed).total
        for doubt in (*doubts_about(settings), *doubts_about_updates(settings, updates)):
            console.warn(f"distill: {doubt}")
        trained, _ = train_best(
            rewound(student, settings),
            objective_of(
                as_teacher([(first, weight), *others]),
                settings,
                task,
                LayerMaps(first, settings, learnt.train, console, "distill"),
                keeper(settings, learnt.train, task, work, console, "distill"),
            ),
            learnt,
            settings,
            seed=seed,
            work=work,
            console=console,
            track=track,
            label="distill",
        )
        forget(work)
    return trained


def objective_of(
    teacher: PreTrainedModel | Teacher,
    settings: Distill,
    task: TaskInfo,
    maps: Callable[[PreTrainedModel, int], Pairs | None] | None = None,
    keep: Keep | None = None,
) -> Callable[[PreTrainedModel, int], Objective]:
    """Makes the distillation objective of each student that is trained.

    ``maps`` says which layers it follows, and ``keep`` has what its teacher says stay on disk.
    """

    def make(student: PreTrainedModel, seed: int) -> Objective:
        pairs = maps(student, seed) if maps else None
        return Distillation(student, teacher, settings, task, seed, pairs=pairs, keep=keep)

    return make


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, student: Student) -> None:
    """Both models read the same pieces, so a student's checkpoint must have been trained on them."""
    if student.source is not None:
        found = load_tokenizer(place(student.source), student.revision)
        check_same_pieces(f"the student {student.source}", found, tokenizer, OF_TEACHER)
