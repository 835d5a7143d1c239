"""Checks from configs what the models of a recipe cannot do, before hours go into training them.

torch is loaded only for what files do not show: whether tokenizers agree, heads of further teachers, cross-encoders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from compress.cards import find_teacher
from compress.data.tokenizer import TOKENIZER_FILE, check_length, read_tokenizer
from compress.errors import ModelError, UsageError
from compress.families import check_freeze, family_named, max_positions, require_prunable
from compress.losses import LOSSES, LayerLoss
from compress.model_info import ShapeInfo, TaskInfo
from compress.model_shapes import changes_shape, plan_student_shape, shape_of_config, student_shape
from compress.model_sources import local_folder, refuse_exported, source_kind
from compress.pipeline.preflight.checkpoint_sizes import check_layer_sizes
from compress.pipeline.preflight.latency_problems import check_latency_table
from compress.pipeline.torchrun_launch import Launch
from compress.prune.prune_ratios import resolve_ratios
from compress.prune.vocabulary.tokenizer_subset import check_file, check_rule
from compress.recipe.distill_schema import Distill, QuantizationAware
from compress.recipe.finetune_schema import FEATURE_LAYERS, Finetune
from compress.recipe.loss_schema import Relation
from compress.recipe.prune_schema import Prune
from compress.recipe.schema import Recipe, Teacher
from compress.recipe.student_schema import Student, Vocabulary, VocabularyRule
from compress.recipe.training_schema import Training
from compress.train.distillation.layer_pairs import LayerPairs, check_local_batch_size, layer_map, uses_layer_map
from compress.train.distillation.phases import loss_phases
from compress.train.distillation.sanity_warnings import settings_warnings, settings_warnings_start

Config = Mapping[str, Any]

MARGIN_LOSS = "margin"
MASKED_LM_SUFFIXES = ("ForMaskedLM", "ForPreTraining")
"""Suffixes of model classes that predict masked words."""


def compatibility_errors(recipe: Recipe, cards: Sequence[Path] = (), task: TaskInfo | None = None) -> Iterator[str]:
    """Yield every requirement of the recipe that its models do not meet, as far as their configs show.

    ``task`` has the labels, where they are known before the data are prepared.
    """
    student, section = recipe.student, "teacher"
    try:
        teacher = config_of(recipe.teacher.source, recipe.teacher.revision, cards)
        origin, section = teacher, "student"
        if student and student.source:
            origin = config_of(student.source, student.revision, cards)
    except ModelError as error:
        yield f"{section}: {error.full_message}"
        return
    widths = attention_widths(origin, student), attention_widths(teacher)
    checks: list[tuple[str, Callable[[], object]]] = [
        ("teacher", lambda: teacher and family_named(teacher["model_type"])),
        *_checks_of_sizes(recipe, teacher, origin, cards),
        ("student", lambda: _check_student(recipe, teacher, origin, cards)),
        ("task", lambda: _check_lengths(recipe, teacher, origin)),
        ("targets", lambda: _check_timed_lengths(recipe, teacher, origin)),
    ]
    for section, pruned in (("student", student), ("prune", recipe.prune)):
        if pruned and pruned.vocabulary:
            checks.append((section, partial(_check_vocabulary, pruned.vocabulary, recipe, cards)))
    checks.append(("prune", lambda: _check_kept_pieces(recipe)))
    if recipe.prune and recipe.prune.removes_units and origin:
        checks.append(("prune", partial(_check_pruning, recipe.prune, origin, student)))
    if recipe.finetune:
        checks.append(("finetune", partial(_check_freeze, recipe.finetune, teacher)))
        checks.append(("finetune", partial(_check_features, recipe.finetune, teacher)))
    for path, settings in recipe.distillations():
        section = ".".join(map(str, path))
        own, others = widths
        followed = own if isinstance(settings, QuantizationAware) else others
        checks += [
            (section, partial(_check_freeze, settings, origin, student)),
            (section, partial(_check_layers, settings, own, followed, pruned=section != "distill")),
            (section, partial(check_local_batch_size, settings, Launch.from_environment().world)),
            (section, partial(_check_masked_model, settings)),
            (section, partial(_check_loaded_teachers, settings, recipe, teacher, task, cards)),
        ]
    checks.append(("distill", lambda: _check_observable_parts(recipe, [teacher, origin])))
    for section, check in checks:
        try:
            check()
        except (ModelError, UsageError) as error:
            yield f"{section}: {error.full_message}"


def compatibility_warnings(recipe: Recipe, cards: Sequence[Path] = ()) -> Iterator[str]:
    """Yield warnings about valid settings that are probably unintended."""
    for path, settings in recipe.distillations():
        yield from (f"{'.'.join(map(str, path))}: {warning}" for warning in settings_warnings(settings))
    student = recipe.student
    if student is None or (student.source and not changes_shape(student)):
        return
    origin = student if student.source else recipe.teacher
    shape = known_shape(config_of(str(origin.source), origin.revision, cards))
    if shape is not None:
        start = plan_student_shape(shape, student).start
        yield from (f"student: {warning}" for warning in settings_warnings_start(start, student))


def config_of(source: str, revision: str | None, cards: Sequence[Path] = ()) -> Config:
    """Return the config.json of a source that is on this machine, else the family that its card names, else nothing."""
    folder = local_folder(source, revision, cards)
    if folder is not None:
        refuse_exported(folder)
        return _read_config(folder / "config.json")
    is_card = source_kind(source, "teachers", cards) == "card"
    return {"model_type": find_teacher(source, cards).family} if is_card else {}


def known_shape(config: Config) -> ShapeInfo | None:
    """Return the shape in a config.json; None where only the model's card is on this machine."""
    return shape_of_config(config) if "vocab_size" in config else None


def attention_widths(config: Config, student: Student | None = None) -> list[int] | None:
    """Return the width of the queries of each layer of a model with this config, or of a student made from it.

    None where it is not known.
    """
    shape = _shape_made_of(config, student)
    return [heads * shape.head_size for heads in shape.heads] if shape and shape.head_size else None


def _shape_made_of(config: Config, student: Student | None) -> ShapeInfo | None:
    """Return the shape of a model with this config, or of a student made from it.

    None where the model is not on this machine, or such a student cannot be made (which the check of shapes reports).
    """
    try:
        shape = known_shape(config)
        return student_shape(shape, student) if shape and student else shape
    except ModelError:
        return None


def _check_pruning(prune: Prune, origin: Config, student: Student | None) -> None:
    """Refuse families that cannot be pruned, and goals that would leave a layer without heads or neurons."""
    require_prunable(family_named(origin["model_type"]))
    if shape := _shape_made_of(origin, student):
        check_latency_table(prune, shape) if prune.has_latency_goal else resolve_ratios(shape, prune)


def _check_freeze(settings: Training, origin: Config, student: Student | None = None) -> None:
    """Refuse to freeze layers that a model with this config, or a student made from it, does not have."""
    if isinstance(settings.freeze, int) and (shape := _shape_made_of(origin, student)):
        check_freeze(family_named(shape.family), len(shape.heads), settings.freeze)


def _check_features(settings: Finetune, teacher: Config) -> None:
    """Refuse to read more layers than the teacher has."""
    if settings.features and (shape := known_shape(teacher)) and len(shape.heads) < FEATURE_LAYERS:
        raise ModelError(
            f"features: {settings.features} reads {FEATURE_LAYERS} layers, and the teacher has {len(shape.heads)}.",
            hint="method: frozen reads the last one",
        )


def _checks_of_sizes(
    recipe: Recipe, teacher: Config, origin: Config, cards: Sequence[Path]
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the checks that the weights of the teacher, and of the student's own checkpoint, are as large as stated."""
    models: list[tuple[str, Teacher | Student | None, Config]] = [
        ("teacher", recipe.teacher, teacher),
        ("student", recipe.student, origin),
    ]
    for section, named, config in models:
        if named and named.source:
            folder, shape = local_folder(named.source, named.revision, cards), _shape_made_of(config, None)
            yield section, partial(check_layer_sizes, folder, shape)


def _check_student(recipe: Recipe, teacher: Config, origin: Config, cards: Sequence[Path]) -> None:
    """Refuse a shape that the student's origin does not allow, and embeddings or a tokenizer that do not fit."""
    student = recipe.student
    if student and (shape := known_shape(origin)):
        plan_student_shape(shape, student)
    if student and (student.embedding is not None or student.source):
        from compress.pipeline.preflight.teacher_student_compat import check_student

        check_student(student, recipe, teacher, cards)


def _check_lengths(recipe: Recipe, teacher: Config, origin: Config) -> None:
    """Refuse texts longer than the teacher, or the student's own checkpoint, has positions for."""
    for model, source in ((teacher, recipe.teacher.source), (origin, recipe.student and recipe.student.source)):
        check_length(recipe.task.max_length, max_positions(model, model.get("pad_token_id") or 0), str(source))


def _check_timed_lengths(recipe: Recipe, teacher: Config, origin: Config) -> None:
    """Refuse targets and grids with inputs longer than the models, which are all timed there, can read."""
    known = [max_positions(model, model.get("pad_token_id") or 0) for model in (teacher, origin)]
    longest = min((positions for positions in known if positions is not None), default=None)
    grid = recipe.measure.grid.length if recipe.measure.grid else ()
    for title, length in [(each.title, each.length) for each in recipe.targets] + [
        ("measure.grid", each) for each in grid
    ]:
        if longest is not None and length != "data" and length > longest:
            raise UsageError(
                f"{title} has inputs of {length} word pieces, and the models have {longest} positions.",
                hint=f"length: {longest} or less",
            )


def _check_vocabulary(rule: Vocabulary, recipe: Recipe, cards: Sequence[Path]) -> None:
    """Refuse a tokenizer whose vocabulary cannot be pruned, and a number of pieces that it cannot keep."""
    named = recipe.student if recipe.student and recipe.student.source else recipe.teacher
    source, revision = str(named.source), named.revision
    folder = local_folder(source, revision, cards)
    if folder is None:
        return
    if (folder / TOKENIZER_FILE).is_file():
        check_file(read_tokenizer(folder).to_str(), rule, source)
        return
    from compress.models.load_save import load_tokenizer

    check_rule(load_tokenizer(folder), rule, source)  # which transformers may make from other files


def _check_kept_pieces(recipe: Recipe) -> None:
    """Refuse to keep more pieces of the pruned model than the student has after its own vocabulary is pruned."""
    rules = [section.vocabulary if section else None for section in (recipe.student, recipe.prune)]
    left, wanted = (rule.keep if isinstance(rule, VocabularyRule) else None for rule in rules)
    if left is not None and wanted is not None and wanted > left:
        raise ModelError(
            f"vocabulary: {wanted:,} pieces cannot be kept: student.vocabulary leaves {left:,}.",
            hint=f"keep: {left} or less, or vocabulary: seen",
        )


def _check_layers(
    settings: Distill, student: list[int] | None, teacher: list[int] | None, *, pruned: bool = False
) -> None:
    """Refuse phases without a loss, and layers or relation heads that models of these widths do not have.

    Of a ``pruned`` student only the depth is known.
    """
    phases = loss_phases(settings)
    if student is None or teacher is None:
        return
    depths = len(student), len(teacher)
    is_measured = settings.layer_map == "measured" or not uses_layer_map(phases)
    layers = LayerPairs(phases, () if is_measured else layer_map(settings.layer_map, *depths), *depths)
    for number, phase in enumerate(phases):
        section = phase.sections.get("relation")
        if isinstance(section, Relation) and section.heads is not None and not pruned:
            from compress.losses.distillation.relation import relation_heads

            for own, followed in layers.pairs(number, "relation"):
                relation_heads(student[own], teacher[followed], 1, section.heads)


def _check_masked_model(settings: Distill) -> None:
    """Refuse a model for augmentation that does not predict masked words."""
    if settings.augment is None:
        return
    source = settings.augment.model
    classes = config_of(source, None).get("architectures") or ()
    if classes and not any(name.endswith(MASKED_LM_SUFFIXES) for name in classes):
        raise ModelError(
            f"augment.model: {source} holds a {', '.join(classes)} where a masked language model is expected.",
            hint="use a checkpoint that was saved with its pretraining head, such as bert-base-uncased",
        )


def _check_loaded_teachers(
    settings: Distill, recipe: Recipe, teacher: Config, task: TaskInfo | None, cards: Sequence[Path]
) -> None:
    """Refuse cross-encoders and further teachers that do not fit the task or the teacher."""
    if settings.teachers or settings.cross_encoder is not None or MARGIN_LOSS in settings.loss_names():
        from compress.pipeline.preflight.teacher_student_compat import check_further_teachers, check_margins

        check_margins(settings, recipe.task)
        check_further_teachers(settings, recipe, teacher, task, cards)


def _check_observable_parts(recipe: Recipe, models: Sequence[Config]) -> None:
    """Refuse losses on parts that a family does not compute separately, such as queries that are fused with keys."""
    phases = [phase for _, settings in recipe.distillations() for phase in settings.phases_or_default()]
    for name, section in (chosen for phase in phases for chosen in phase.losses.chosen().items()):
        loss = LOSSES[name]
        for part in loss.parts(section) if isinstance(loss, LayerLoss) else ():
            for model in filter(None, models):
                family_named(model["model_type"]).part_path(part)


def _read_config(path: Path) -> Config:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise ModelError(f"{path} names no model_type.")
    return content
