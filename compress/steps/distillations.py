"""What all trainings that learn from another model have in common: hashes, checks, how they run and shrink."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import ValidationError

from compress.data.splits.prepare_splits import load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED, unlabelled_rows
from compress.errors import ModelError, Problem, first_error
from compress.families import family_named
from compress.losses import LOSSES, LayerLoss, OutputLoss
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import shape_of_folder
from compress.model_sources import folder_identity, identity
from compress.recipe.distill_schema import OUTPUT_LOSSES, Distill, Phase
from compress.recipe.loss_schema import MARGIN_LOSS, Losses, Relation, SoftLabel
from compress.recipe.student_schema import LightStudent, Shared
from compress.recipe.training_schema import Training
from compress.recipe.yaml_lines import KeyPath
from compress.steps.model_configs import (
    Check,
    Config,
    ModelConfigs,
    attention_widths,
    check_frozen_layers,
    config_of,
    query_widths,
    shape_made_of,
)
from compress.steps.model_step import NamedModel, Smoke, hashed_training
from compress.storage.atomic_write import atomic_replace_folder
from compress.tasks import KINDS, kind_of
from compress.train.distillation.layer_pairs import LayerPairs, layer_map, uses_layer_map
from compress.train.distillation.phases import loss_phases
from compress.train.training_costs import probe_count, teachers_run, throughput_of

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext
    from compress.train.save_trained import TrainedModel

OF_LAYERS = ("layer_map", "freeze", "unfreeze", "layer_decay", "precision", "compile")
"""Settings of `distill` that are about layers, and about large products."""
OWN = ("epochs", "batch_size", "learning_rate", "patience", "evaluations")
"""Those that a student with settings of its own has itself, or that follow from them."""
OnOutputs = TypeVar("OnOutputs", bound=Distill)

Rates = Mapping[str, Any] | None
"""The throughput of a training, as plain values."""

MASKED_LM_SUFFIXES = ("ForMaskedLM", "ForPreTraining")
"""Suffixes of model classes that predict masked words."""
MASKED_FAMILY = "bert"
"""Of the tiny masked language model with which a smoke run augments."""
MAPPED_LOSSES = [name for name, loss in LOSSES.items() if isinstance(loss, LayerLoss) and loss.at == "mapped"]
"""Losses that use the layer map."""


def hashed_distillation(settings: Distill) -> dict[str, Any]:
    """The settings that change the result; other models are identified by their contents, not by their path."""
    hashed = hashed_training(settings)
    for teacher, further in zip(hashed["teachers"], settings.teachers, strict=True):
        teacher["source"] = identity(further.source, further.revision)
    if settings.augment is not None:
        hashed["augment"]["model"] = identity(settings.augment.model, None)
    if settings.cross_encoder is not None:
        hashed["cross_encoder"] = folder_identity(settings.cross_encoder)
    return hashed


def on_outputs(settings: Distill, made: type[OnOutputs], student: LightStudent | Shared, **more: object) -> OnOutputs:
    """Return the training of a student that is compared with its teacher in its outputs alone.

    It is the recipe's distillation without what is about layers, and with epochs and rates of the student's own, and
    ``more`` settings. Where the recipe compares nothing but layers, the outputs are compared all the same.
    """
    kept = {
        key: value
        for key, value in settings
        if key in settings.model_fields_set and key not in (*OF_LAYERS, *OWN, "cross_encoder")
    }
    phases = [phase for each in settings.phases if (phase := _phase_on_outputs(each)) is not None]
    total = sum(phase.share for phase in phases)
    kept["phases"] = tuple(phase.model_copy(update={"share": phase.share / total}) for phase in phases)
    if not phases:
        whole = _phase_on_outputs(Phase(share=1.0, losses=settings.losses, hard_label=settings.hard_label))
        compares_layers_alone = settings.losses.chosen() and not (whole and whole.losses.chosen())
        kept["losses"] = OUTPUT_LOSSES if compares_layers_alone or not whole else whole.losses
        kept["hard_label"] = settings.hard_label
    else:
        kept = {key: value for key, value in kept.items() if key not in ("losses", "hard_label")}
    own = {"epochs": student.epochs, "batch_size": student.batch_size, "learning_rate": student.learning_rate}
    return made(**kept, **own, **more)


def problems_of_training(path: KeyPath, make: Callable[[], Distill]) -> Iterator[Problem]:
    """Yield why settings of a student's own and those of the distillation do not go together."""
    try:
        make()
    except ValidationError as error:
        yield Problem(path, f"its training follows from distill: {first_error(error)}")


def _phase_on_outputs(phase: Phase) -> Phase | None:
    """Return a phase with the losses that compare outputs alone; None where it has none."""
    losses = {name: loss for name, loss in phase.losses.chosen().items() if isinstance(LOSSES[name], OutputLoss)}
    if not losses and not phase.hard_label:
        return None
    return phase.model_copy(update={"losses": Losses(**losses)})


def unlabelled_steps(plan: Plan) -> list[str]:
    """Return the step that reads unlabelled texts, where a plan has one."""
    return [step.name for step in plan.steps if step.kind == UNLABELLED]


def unlabelled_inputs(context: StepContext) -> Sequence[Any]:
    """Return the unlabelled rows among a step's inputs."""
    folder = context.inputs.get(UNLABELLED)
    return unlabelled_rows(folder) if folder else ()


def run_distillation(
    context: StepContext,
    train: Callable[..., TrainedModel],
    models: Sequence[Any],
    settings: Distill | Literal[False],
    seed: int,
    teacher: str,
    **options: Any,
) -> Rates:
    """Train by ``train``: of ``models``, with the rows, unlabelled texts and console of the step."""
    options |= {"console": context.console, "track": context.track, "unlabelled_rows": unlabelled_inputs(context)}
    trained = train(*models, context.inputs["data"], settings, seed, context.work, **options)
    return rates_of(context, trained, settings, teacher)


def rates_of(
    context: StepContext, trained: TrainedModel, settings: Training | Literal[False], teacher: str | None = None
) -> Rates:
    """Return the throughput of a training."""
    if trained.result is None or not settings or trained.info.shape is None:
        return None
    teachers = teachers_run(settings, shape_of_folder(context.inputs[teacher]) if teacher else None)
    info, result, shape = load_prepared(context.inputs["data"]).info, trained.result, trained.info.shape
    rates = throughput_of(result, settings, shape, teachers)
    if rates and (probe := trained.info.probe) and probe.operations:
        operations = probe_count(settings, kind_of(info.task_info).head) * probe.operations
        rates = rates.model_copy(update={"probe_operations": operations})
    return rates.model_dump(mode="json") if rates else None


def models_of_distillation(path: KeyPath, settings: Distill) -> Iterator[NamedModel]:
    """Yield the further teachers of a distillation, and the model that augments its texts."""
    for index, further in enumerate(settings.teachers):
        yield NamedModel((*path, "teachers", index), further.source, further.revision)
    if settings.augment:
        yield NamedModel((*path, "augment", "model"), settings.augment.model, None)


def distillation_problems(kind: str, path: KeyPath, settings: Distill) -> Iterator[Problem]:
    """Yield settings of a distillation that have no effect for a kind of task; defaults are never reported."""
    defaults, soft_labels = Distill(), list(_soft_labels(path, settings))
    has_numbers = KINDS[kind].outputs.distribution is None
    reason = f"has no effect for {kind}, whose outputs are compared by their squared distance"
    for key, soft in soft_labels if has_numbers else ():
        if soft.form != "kl":
            yield Problem((*key, "form"), f"{soft.form} {reason}")
        elif soft.temperature is not None:
            yield Problem((*key, "temperature"), reason)
    softened = any(soft.form != "mse" and soft.temperature is None for _, soft in soft_labels)
    if settings.temperature != defaults.temperature and (not softened or has_numbers):
        reason = "has no effect here: it softens what soft_label compares (forms kl and decoupled of probabilities)"
        yield Problem((*path, "temperature"), reason)
    if settings.layer_map != defaults.layer_map and not settings.loss_names() & set(MAPPED_LOSSES):
        reason = f"has no effect without a loss that compares mapped layers: {' or '.join(MAPPED_LOSSES)}"
        yield Problem((*path, "layer_map"), reason)
    yield from _without_their_losses(path, settings)


def _without_their_losses(path: KeyPath, settings: Distill) -> Iterator[Problem]:
    """Yield what only some losses read, and none of these is used."""
    names = settings.loss_names()
    if settings.class_weights and not any(phase.hard_label for phase in settings.phases_or_default()):
        yield Problem((*path, "class_weights"), "has no effect without hard_label, the loss that it weighs")
    if settings.teachers and not any(isinstance(LOSSES[name], OutputLoss) for name in names):
        reason = "has no effect without soft_label: layers are compared with those of the recipe's own teacher alone"
        yield Problem((*path, "teachers"), reason)
    if settings.augment and not names:
        yield Problem((*path, "augment"), "has no effect with hard_label alone: changed texts have no true labels")


def distillation_checks(
    configs: ModelConfigs, path: KeyPath, settings: Distill, *, own_teacher: bool = False, pruned: bool = True
) -> Iterator[Check]:
    """Yield checks of what the models of a distillation cannot do.

    With ``own_teacher`` the student learns from itself; of a ``pruned`` one only the depth is known.
    """
    section, student = ".".join(map(str, path)), configs.recipe.student
    own = attention_widths(configs.origin, student)
    followed = own if own_teacher else attention_widths(configs.teacher)
    yield section, partial(check_frozen_layers, settings, shape_made_of(configs.origin, student))
    yield section, partial(_check_layers, settings, own, followed, pruned=pruned)
    yield from teacher_checks(configs, path, settings)


def check_made_student(settings: Distill, shape: ShapeInfo, teacher: Config) -> None:
    """Refuse layers, and relation heads, that a student of this shape does not have."""
    check_frozen_layers(settings, shape)
    _check_layers(settings, query_widths(shape), attention_widths(teacher), pruned=False)


def teacher_checks(configs: ModelConfigs, path: KeyPath, settings: Distill) -> Iterator[Check]:
    """Yield checks of the further models of a distillation."""
    section = ".".join(map(str, path))
    yield section, partial(_check_masked_model, settings)
    yield section, partial(_check_loaded_teachers, settings, configs)


def check_observable_parts(distillations: Sequence[Distill], models: Sequence[Config]) -> None:
    """Refuse losses on parts that a family does not compute separately, such as queries that are fused with keys."""
    phases = [phase for settings in distillations for phase in settings.phases_or_default()]
    for name, section in (chosen for phase in phases for chosen in phase.losses.chosen().items()):
        loss = LOSSES[name]
        for part in loss.parts(section) if isinstance(loss, LayerLoss) else ():
            for model in filter(None, models):
                family_named(model["model_type"]).part_path(part)


def smoke_distillation(settings: Distill, smoke: Smoke) -> Distill:
    """Return a distillation without further teachers, which a random model cannot be, with an update for each phase."""
    settings = smoke.few_updates(settings)
    pairs = settings.layer_map if isinstance(settings.layer_map, str) else ((0, 1),)  # named layers may not exist
    changes: dict[str, Any] = {"layer_map": pairs, "teachers": (), "losses": _any_heads(settings.losses)}
    if settings.phases:
        count = len(settings.phases)
        changes["max_steps"] = max(settings.max_steps or 1, count)
        changes["phases"] = tuple(
            phase.model_copy(update={"share": 1 / count, "losses": _any_heads(phase.losses)})
            for phase in settings.phases
        )
    if settings.augment:
        model = tiny_model(smoke.root / f"masked-{MASKED_FAMILY}", MASKED_FAMILY, masked=True)
        changes["augment"] = settings.augment.model_copy(update={"model": str(model), "copies": 1})
    return settings.model_copy(update=changes)


def tiny_model(folder: Path, family: str, masked: bool = False) -> Path:
    """Write a tiny model with a tokenizer of single characters, unless it exists."""
    from compress.models.tiny import write_tiny_model

    if not folder.is_dir():
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
        write_tiny_model(temporary, family, masked=masked)
        atomic_replace_folder(temporary, folder)
    return folder


def _any_heads(losses: Losses) -> Losses:
    """Relations of the last layers in any number of heads: those named may not exist."""
    relation = losses.relation and losses.relation.model_copy(update={"layer": None, "heads": None})
    return losses.model_copy(update={"relation": relation})


def _soft_labels(path: KeyPath, settings: Distill) -> Iterator[tuple[KeyPath, SoftLabel]]:
    """Yield the soft labels of all phases with their key paths."""
    for number, phase in enumerate(settings.phases_or_default()):
        soft = phase.losses.chosen().get("soft_label")
        if isinstance(soft, SoftLabel):
            position: KeyPath = ("phases", number) if settings.phases else ()
            yield (*path, *position, "losses", "soft_label"), soft


def _check_layers(settings: Distill, student: list[int] | None, teacher: list[int] | None, *, pruned: bool) -> None:
    """Refuse phases without a loss, and layers or relation heads that models of these widths do not have."""
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


def _check_loaded_teachers(settings: Distill, configs: ModelConfigs) -> None:
    """Refuse cross-encoders and further teachers that do not fit the task or the teacher."""
    if settings.teachers or settings.cross_encoder is not None or MARGIN_LOSS in settings.loss_names():
        from compress.steps.teacher_student_compat import check_further_teachers, check_margins

        check_margins(settings, configs.recipe.task)
        check_further_teachers(settings, configs)
