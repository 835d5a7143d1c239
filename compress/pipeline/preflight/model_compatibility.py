"""What the models of a recipe cannot do, read from their configs before hours go into training them.

Loads torch: asked only when a model step is due.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from compress.cards import find_teacher
from compress.data.loading.data_digest import source_entries
from compress.data.tokenizer import check_length
from compress.errors import ModelError, UsageError
from compress.families import family_named, max_positions, require_prunable
from compress.losses import LOSSES, LayerLoss
from compress.model_info import TaskInfo
from compress.model_shapes import changes_shape, plan_student_shape
from compress.model_sources import local_folder, source_kind
from compress.models.checkpoint_task import EMBEDDING
from compress.models.forward_hooks import part_path
from compress.models.load_save import refuse_exported, saved_embedding_size
from compress.pipeline.preflight.teacher_student_compat import (
    attention_widths,
    check_labels,
    check_layers,
    check_pieces,
    known_shape,
    tokenizer_of,
)
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.schema import Recipe, Task
from compress.recipe.training_schema import Distill
from compress.tasks import kind_of
from compress.train.distillation.augment import check_unlabelled
from compress.train.distillation.cross_encoder_scores import MARGIN_LOSS as MARGIN
from compress.train.distillation.cross_encoder_scores import check_margin_loss
from compress.train.distillation.embedding_projection import check_embedding_width
from compress.train.distillation.layer_pairs import check_local_batch_size
from compress.train.distillation.sanity_warnings import settings_warnings, settings_warnings_start
from compress.train.distillation.tokenizer_checks import STUDENT_HINT, TEACHERS_HINT, check_embedding_count

Config = Mapping[str, Any]

WORD_HEADS = ("ForMaskedLM", "ForPreTraining")
"""How the classes end that say which word is hidden; of the latter some do not, which their weights tell."""

UNKNOWN: Config = {}
"""Of a model on the hub that is not here yet nothing is known but its card."""


def compatibility_errors(recipe: Recipe, cards: Sequence[Path] = (), task: TaskInfo | None = None) -> Iterator[str]:
    """Every part of the recipe that its teacher or student cannot go along with, as far as their configs tell.

    ``task`` has the labels, where they are known before the data are read.
    """
    student, part = recipe.student, "teacher"
    try:
        teacher = config_of(recipe.teacher.source, recipe.teacher.revision, cards)
        origin, part = teacher, "student"
        if student and student.source:
            origin = config_of(student.source, student.revision, cards)
    except ModelError as error:
        yield f"{part}: {error.full_message}"
        return
    yield from _refusals("teacher", lambda: family_named(teacher["model_type"]) if teacher else None)
    yield from _refusals("student", lambda: _takes_shape(recipe, origin))
    yield from _refusals("student", lambda: _embeds_within(recipe, teacher, cards))
    yield from _refusals("student", lambda: _reads_alike(recipe, cards))
    yield from _refusals("task", lambda: _reads_so_far(recipe, teacher, origin))
    if recipe.prune and origin:
        yield from _refusals("prune", lambda: require_prunable(family_named(origin["model_type"])))
    for part, settings in _distillations(recipe).items():
        yield from _refusals(part, partial(_follows_layers, part, recipe, settings, teacher, origin))
        yield from _refusals(part, partial(_follows_margins, settings, recipe.task))
        unlabelled = bool(source_entries(recipe.task.data, "unlabelled"))
        yield from _refusals(part, partial(check_unlabelled, settings, unlabelled))
        yield from _refusals(part, partial(check_local_batch_size, settings, Launch.from_environment().world))
        yield from _refusals(part, partial(_says_words, settings))
        yield from _refusals(part, partial(_teach_together, settings, recipe, teacher, task, cards))
    yield from _refusals("distill", lambda: _shows_parts(recipe, [config for config in (teacher, origin) if config]))


def compatibility_warnings(recipe: Recipe, cards: Sequence[Path] = ()) -> Iterator[str]:
    """What will run and nobody may have wished, of a recipe that has no faults."""
    for part, settings in _distillations(recipe).items():
        yield from (f"{part}: {doubt}" for doubt in settings_warnings(settings))
    student = recipe.student
    if student is None:
        return
    named = student if student.source else recipe.teacher
    shape = known_shape(config_of(str(named.source), named.revision, cards))
    if shape is not None and not (student.source and not changes_shape(student)):
        start = plan_student_shape(shape, student).start
        yield from (f"student: {warning}" for warning in settings_warnings_start(start, student))


def config_of(source: str, revision: str | None, cards: Sequence[Path] = ()) -> Config:
    """The config.json behind a source, where it lies on this machine; else what a card tells of the family."""
    folder = local_folder(source, revision, cards)
    if folder is not None:
        refuse_exported(folder)
        return _read(folder / "config.json")
    return (
        {"model_type": find_teacher(source, cards).family}
        if source_kind(source, "teachers", cards) == "card"
        else UNKNOWN
    )


def _refusals(part: str, attempt: Callable[[], object]) -> Iterator[str]:
    try:
        attempt()
    except (ModelError, UsageError) as error:
        yield f"{part}: {error.full_message}"


def _takes_shape(recipe: Recipe, origin: Config) -> None:
    """Refuse layers, widths and factors that cannot be had of what the student is made of."""
    if recipe.student and (shape := known_shape(origin)):
        plan_student_shape(shape, recipe.student)


def _embeds_within(recipe: Recipe, teacher: Config, cards: Sequence[Path]) -> None:
    """Refuse embeddings of a width that the teacher cannot teach, or for a task that has none."""
    if recipe.student and recipe.student.embedding is not None:
        embeds = kind_of(recipe.task).head == EMBEDDING.name
        check_embedding_width(
            recipe.student, recipe.task.kind, _embedding_width(recipe, teacher, cards) if embeds else 0
        )


def _reads_alike(recipe: Recipe, cards: Sequence[Path]) -> None:
    """Refuse a checkpoint to start from that was trained on other pieces than the teacher."""
    student = recipe.student
    if student and student.source:
        expected = tokenizer_of(recipe.teacher.source, recipe.teacher.revision, cards)
        found = tokenizer_of(student.source, student.revision, cards)
        check_pieces(student.source, found, expected, STUDENT_HINT)


def _embedding_width(recipe: Recipe, teacher: Config, cards: Sequence[Path]) -> int | None:
    """How wide the teacher's embeddings are or, of a plain encoder, will be; None where its config is not here."""
    source = recipe.teacher.source
    saved = (
        saved_embedding_size(Path(source).expanduser()) if source_kind(source, "teachers", cards) == "folder" else None
    )
    return saved or teacher.get("hidden_size", teacher.get("dim"))


def _reads_so_far(recipe: Recipe, teacher: Config, origin: Config) -> None:
    """Refuse texts longer than the teacher, or the checkpoint that a student starts from, has positions for."""
    for model, source in ((teacher, recipe.teacher.source), (origin, recipe.student and recipe.student.source)):
        check_length(recipe.task.max_length, max_positions(model, model.get("pad_token_id") or 0), str(source))


def _distillations(recipe: Recipe) -> dict[str, Distill]:
    """By the recipe's key, every training that follows another model."""
    return {".".join(map(str, path)): settings for path, settings in recipe.distillations()}


def _follows_margins(settings: Distill, task: Task) -> None:
    """Refuse a cross-encoder that is none, or has nothing to do; and margins that nobody tells or nothing has."""
    check_margin_loss(settings, task)
    if MARGIN not in settings.loss_names():
        return
    if settings.cross_encoder is None:
        raise UsageError(
            f"the loss {MARGIN} follows a cross-encoder, and none is named.",
            hint="cross_encoder: FOLDER beside it, a model made by a ranking recipe",
        )
    if task.negatives is None and not task.hard_negatives:
        raise UsageError(
            f"the loss {MARGIN} compares an answer with documents that are none, and train has none of those.",
            hint="task.hard_negatives: 4 finds some; task.negatives names a column of them",
        )


def _says_words(settings: Distill) -> None:
    """Refuse a model for augmentation that says no words."""
    if settings.augment is None:
        return
    source = settings.augment.model
    config = config_of(source, None)
    classes = config.get("architectures") or ()
    if classes and not any(name.endswith(WORD_HEADS) for name in classes):
        raise ModelError(
            f"augment.model: {source} holds a {', '.join(classes)} where a masked language model is expected.",
            hint="a checkpoint that was saved with its pretraining head, such as bert-base-uncased, is one",
        )


def _follows_layers(part: str, recipe: Recipe, settings: Distill, teacher: Config, origin: Config) -> None:
    """Refuse losses with nothing to learn from, and layers that student or teacher will not have."""
    student = attention_widths(origin, recipe.student)
    check_layers(settings, student, attention_widths(teacher), pruned=part != "distill")


def _teach_together(
    settings: Distill,
    recipe: Recipe,
    teacher: Config,
    task: TaskInfo | None,
    cards: Sequence[Path],
) -> None:
    """Refuse a further teacher that has another kind of head, other labels or pieces, or too few positions."""
    expected = tokenizer_of(recipe.teacher.source, recipe.teacher.revision, cards) if settings.teachers else None
    for named in settings.teachers:
        who = f"teachers: {named.source}"
        config = config_of(named.source, named.revision)
        if not config:
            continue
        family_named(config["model_type"])
        check_length(recipe.task.max_length, max_positions(config, config.get("pad_token_id") or 0), named.source)
        if {"vocab_size"} <= config.keys() & teacher.keys():
            check_embedding_count(who, int(config["vocab_size"]), int(teacher["vocab_size"]))
        check_labels(who, named, recipe.task, task)
        check_pieces(who, tokenizer_of(named.source, named.revision), expected, TEACHERS_HINT)


def _shows_parts(recipe: Recipe, models: Sequence[Config]) -> None:
    """Refuse a loss on what a family does not show, such as the attention of one that fuses its queries."""
    phases = [phase for _, settings in recipe.distillations() for phase in settings.phases_or_default()]
    for name, section in (chosen for phase in phases for chosen in phase.losses.chosen().items()):
        loss = LOSSES[name]
        for part in loss.parts(section) if isinstance(loss, LayerLoss) else ():
            for model in models:
                part_path(family_named(model["model_type"]), part)


def _read(path: Path) -> Config:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds a {type(content).__name__} where keys and values are expected.")
    if not isinstance(content.get("model_type"), str):
        raise ModelError(f"{path} names no model_type.")
    return content
