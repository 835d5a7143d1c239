"""Checks of whether models fit each other that need torch: tokenizers, embeddings, further teachers, cross-encoders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from compress.data.tokenizer import check_length
from compress.errors import UsageError
from compress.families import family_named, max_positions
from compress.model_sources import local_folder, source_kind
from compress.models.checkpoint_task import EMBEDDING, checkpoint_task
from compress.models.heads import HEADS
from compress.models.load_save import TOKENIZER_FILES, load_tokenizer, read_config, saved_embedding_size
from compress.recipe.distill_schema import Distill
from compress.recipe.loss_schema import MARGIN_LOSS
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import Student
from compress.recipe.task_schema import Task
from compress.steps.model_configs import ModelConfigs, config_of
from compress.storage.file_names import expanded_user
from compress.tasks import kind_of
from compress.train.distillation.augment import check_unlabelled
from compress.train.distillation.cross_encoder_scores import check_margin_loss
from compress.train.distillation.embedding_projection import check_embedding_width
from compress.train.distillation.teachers import (
    STUDENT_HINT,
    TEACHERS_HINT,
    check_embedding_count,
    check_same_vocabulary,
    check_teacher_head,
    check_teacher_labels,
    ids_in_teacher,
)


def check_student(student: Student, configs: ModelConfigs) -> None:
    """Refuse embeddings wider than the teacher's, or for a task that has none, and a checkpoint's other tokenizer."""
    recipe, cards = configs.recipe, configs.cards
    if student.embedding is not None:
        width = _embedding_width(recipe, configs.teacher, cards) if kind_of(recipe.task).head == EMBEDDING.name else 0
        check_embedding_width(student, recipe.task.kind, width)
    if student.source:
        expected = tokenizer_of(recipe.teacher.source, recipe.teacher.revision, cards)
        own = tokenizer_of(student.source, student.revision, cards)
        if own is not None and expected is not None:
            ids_in_teacher(student.source, own, expected, STUDENT_HINT)


def check_margins(settings: Distill, task: Task) -> None:
    """Refuse a cross-encoder that is none or has no effect, and the loss on margins where there are none."""
    check_margin_loss(settings, task)
    check_unlabelled(settings, task.data.has_unlabelled)
    if MARGIN_LOSS not in settings.loss_names():
        return
    if settings.cross_encoder is None:
        raise UsageError(
            f"the loss {MARGIN_LOSS} needs a cross-encoder, and none is named.",
            hint="add cross_encoder: FOLDER, a model made by a ranking recipe",
        )
    if task.negatives is None and not task.hard_negatives:
        raise UsageError(
            f"the loss {MARGIN_LOSS} compares an answer with other documents, and train has none of those.",
            hint="task.hard_negatives: 4 selects some; task.negatives names a column of them",
        )


def check_further_teachers(settings: Distill, configs: ModelConfigs) -> None:
    """Refuse a further teacher that has another kind of head, other labels or pieces, or too few positions."""
    recipe, teacher = configs.recipe, configs.teacher
    named_teacher = recipe.teacher.source, recipe.teacher.revision
    if settings.teachers:
        _check_one_width(recipe, teacher, configs.cards)
    expected = tokenizer_of(*named_teacher, configs.cards) if settings.teachers else None
    for named in settings.teachers:
        who = f"teachers: {named.source}"
        config = config_of(named.source, named.revision)
        if not config:
            continue
        family_named(config["model_type"])
        check_length(recipe.task.max_length, max_positions(config, config.get("pad_token_id") or 0), named.source)
        if {"vocab_size"} <= config.keys() & teacher.keys():
            check_embedding_count(who, int(config["vocab_size"]), int(teacher["vocab_size"]))
        if source_kind(named.source, "teachers") == "folder":
            folder = expanded_user(named.source)
            saved = checkpoint_task(folder, read_config(folder))
            check_teacher_head(who, saved, HEADS[kind_of(recipe.task).head])
            if configs.task is not None:  # known once the data are prepared
                check_teacher_labels(who, saved, configs.task)
        theirs = tokenizer_of(named.source, named.revision)
        if theirs is not None and expected is not None:
            check_same_vocabulary(who, theirs, expected, TEACHERS_HINT)


def _check_one_width(recipe: Recipe, teacher: Mapping[str, Any], cards: Sequence[Path]) -> None:
    """Refuse a student with narrower embeddings beside further teachers: only the first one's would be reduced."""
    if kind_of(recipe.task).head != "sentence-embedding":
        return
    width = _embedding_width(recipe, teacher, cards)
    widths = [each.embedding for each in recipe.light_students.values()]
    if student := recipe.student:
        own = saved_embedding_size(expanded_user(student.source)) if student.source else None
        widths.append(student.embedding or (own if own and width and own < width else None))
    for wanted in filter(None, widths):
        if width is not None and wanted != width:
            raise UsageError(
                f"a student's embeddings have {wanted} numbers and the teacher's {width}, and only one teacher's can be"
                " reduced.",
                hint="a student as wide as the teacher, or no distill.teachers",
            )


def _embedding_width(recipe: Recipe, teacher: Mapping[str, Any], cards: Sequence[Path]) -> int | None:
    """Return the width of the teacher's embeddings, present or (of a plain encoder) future; None while unknown."""
    source = recipe.teacher.source
    is_folder = source_kind(source, "teachers", cards) == "folder"
    saved = saved_embedding_size(expanded_user(source)) if is_folder else None
    return saved or (teacher.get(family_named(teacher["model_type"]).hidden_key) if teacher else None)


def tokenizer_of(
    source: str, revision: str | None = None, cards: Sequence[Path] = ()
) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer of a source, where its files are on this machine."""
    folder = local_folder(source, revision, cards)
    if folder is None or not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None
    return load_tokenizer(folder)
