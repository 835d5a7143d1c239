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
from compress.errors import ModelError
from compress.folder import TaskInfo
from compress.models.embedding import embedding_size
from compress.models.families import shape_of
from compress.models.folder import fit_head, load_model, load_tokenizer
from compress.models.shrink import build_student, place
from compress.recipe.training import Distill, Student
from compress.tasks.kind import Row
from compress.train import material
from compress.train.cross_scores import with_scores
from compress.train.distillation import Distillation
from compress.train.importance import importance_for
from compress.train.layer_map import Pairs
from compress.train.likeness import LayerMaps
from compress.train.made import Made, save_made
from compress.train.objective import Objective
from compress.train.restarts import forget, rewound, train_best
from compress.train.spaces import in_space_of, teacher_of


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
    model = teacher_of(student, own, train, task, tokens)
    if model is not own:
        console.note(f"{step}: of the teacher's embeddings the {embedding_size(model)} principal components are learnt")

    importance = importance_for(student, model, train, task, tokens, seed)

    def build(seed: int) -> PreTrainedModel:
        return build_student(model, student, task, seed=seed, importance=importance)

    if settings is False:
        return save_made(build(seed), tokenizer, work, step, data)
    given = with_scores(train, settings, task, work, console)
    learnt = material.from_rows(given, select, task, tokens, console, documents)
    maps = LayerMaps(model, settings, learnt.train, console, step)
    made, result = train_best(
        build,
        objective_of(model, settings, task, maps),
        learnt,
        settings,
        seed=seed,
        work=work,
        console=console,
        track=track,
        label=step,
    )
    console.note(f"{step}: a student of {shape_of(made).text} from a teacher of {shape_of(model).text}")
    return save_made(made, tokenizer, work, step, data, result, maps.last)


def distill_from_model(
    teacher: PreTrainedModel,
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
) -> PreTrainedModel:
    """Train ``student`` after ``teacher``, both with a head for ``task``, and return it with its best weights.

    ``build_student`` makes a student of any shape. With a ``work`` folder this goes on from there after a kill.
    """
    console = console or Console("quiet")
    settings = settings or Distill()
    for model in (teacher, student):
        fit_head(model, task)
    with ExitStack() as stack:
        work = work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tokens = material.tokens_of(teacher.config, tokenizer)
        teacher = in_space_of(student, teacher, train_rows, task, tokens)
        given = with_scores(train_rows, settings, task, work, console)
        learnt = material.from_rows(given, select_rows, task, tokens, console)
        trained, _ = train_best(
            rewound(student, settings),
            objective_of(teacher, settings, task, LayerMaps(teacher, settings, learnt.train, console, "distill")),
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
    teacher: PreTrainedModel,
    settings: Distill,
    task: TaskInfo,
    maps: Callable[[PreTrainedModel, int], Pairs | None] | None = None,
) -> Callable[[PreTrainedModel, int], Objective]:
    """Makes the distillation objective of each student that is trained; ``maps`` says which layers it follows."""
    return lambda student, seed: Distillation(
        student, teacher, settings, task, seed, pairs=maps(student, seed) if maps else None
    )


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, student: Student) -> None:
    """Both models read the same pieces, so a student's checkpoint must have been trained on them."""
    if student.source is None:
        return
    vocabulary = load_tokenizer(place(student.source), student.revision).get_vocab()
    if vocabulary != tokenizer.get_vocab():
        raise ModelError(
            f"the student {student.source} has another vocabulary ({len(vocabulary)} pieces) than its teacher "
            f"({len(tokenizer.get_vocab())} pieces), and both read the same batches.",
            hint="take a student that was trained with the teacher's tokenizer, or give a shape instead",
        )
