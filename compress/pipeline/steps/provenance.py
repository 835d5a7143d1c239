"""Describes how each model of a run was made from another, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compress.model_history import ChosenSetting, TrainingInfo, TrialInfo
from compress.model_info import find_info
from compress.model_shapes import changes_shape, plan_student_shape, shape_of_folder
from compress.model_sources import local_folder
from compress.pipeline.graph import VOCABULARY, Plan, PlannedModel
from compress.pipeline.strip_paths import source_name
from compress.recipe.student_schema import Student
from compress.report.run_facts import Provenance
from compress.train.core.auto_settings import describe_chosen

STARTS = {"teacher": "", "slice": "the most important parts of ", "svd": "the principal directions of "}
"""What a student takes from the chosen layers."""


def provenance(plan: Plan, folders: Mapping[str, Path]) -> dict[str, Provenance]:
    """How every model but the teacher began, of those whose folders exist."""
    models = {}
    for model in plan.evaluated:
        if model.parent is not None and model.name in folders:
            info = find_info(folders[model.name])
            start = _start(plan, model, plan.model(model.parent), folders)
            models[model.name] = Provenance(start=start, augmented=info.augmented if info else None)
    return models


def chosen_settings(plan: Plan, folders: Mapping[str, Path]) -> dict[str, Mapping[str, ChosenSetting]]:
    """Return by trained model the values of settings that were left to `auto`, of those whose folders exist."""
    return {name: training.chosen for name, training in _trainings(plan, folders).items() if training.chosen}


def chosen_precisions(plan: Plan, folders: Mapping[str, Path]) -> dict[str, str]:
    """Return by trained model the precision that was left to `auto`, with the reason, as `chosen_settings`."""
    chosen = {name: training.chosen_precision for name, training in _trainings(plan, folders).items()}
    return {name: text for name, text in chosen.items() if text}


def describe_auto(plan: Plan, folders: Mapping[str, Path]) -> dict[str, str]:
    """Return both by trained model: `learning_rate 0.0002 (hidden size 384), precision fp32 (…)`."""
    models = {}
    for name, training in _trainings(plan, folders).items():
        precision = training.chosen_precision
        parts = [describe_chosen(training.chosen), f"precision {precision}" if precision else ""]
        models[name] = ", ".join(filter(None, parts))
    return {name: text for name, text in models.items() if text}


def trials(plan: Plan, folders: Mapping[str, Path]) -> dict[str, tuple[TrialInfo, ...]]:
    """Return by trained model all trainings that it is the best of, where there were several."""
    return {name: training.trials for name, training in _trainings(plan, folders).items() if training.trials}


def _trainings(plan: Plan, folders: Mapping[str, Path]) -> dict[str, TrainingInfo]:
    """Return how each model whose folder exists was trained."""
    trained = [model.name for model in plan.models if model.training and model.name in folders]
    infos = {name: find_info(folders[name]) for name in trained}
    return {name: info.training for name, info in infos.items() if info and info.training}


def _start(plan: Plan, model: PlannedModel, parent: PlannedModel, folders: Mapping[str, Path]) -> str:
    """`the student, pruned` or where a student's weights come from."""
    if isinstance(model.shape, Student):
        own = "; a vocabulary of its own" if model.shape.vocabulary else ""
        return _student_start(model.shape, parent.name, folders.get(parent.name)) + own
    if model.section == VOCABULARY:
        return f"the {parent.name} model with fewer word pieces"
    if model.section == "quantize":
        return f"the {parent.name} model, trained while it computes as in INT8"
    # A model that is only trained begins as its parent, which has no row of its own.
    if parent.evaluated or parent.parent is None:
        return f"the {parent.name}, pruned"
    return _start(plan, parent, plan.model(parent.parent), folders)


def _student_start(student: Student, parent: str, folder: Path | None) -> str:
    """`layers 1, 3, 5 of the teacher`, or `random weights`."""
    name = f"the {parent}"
    if student.source is not None:
        name, folder = source_name(student.source), local_folder(student.source, student.revision)
        if not changes_shape(student):
            return f"the checkpoint {name}"
    origin = shape_of_folder(folder)
    if origin is None:  # the checkpoint was removed since; the student is still there
        return f"parts of {name}"
    shape = plan_student_shape(origin, student)
    if shape.start == "random":
        return "random weights"
    layers = ("layer " if len(shape.layers) == 1 else "layers ") + ", ".join(map(str, shape.layers))
    factors = f"; word vectors in {shape.factors} factors" if shape.factors else ""
    return f"{STARTS[shape.start]}{layers} of {name}{factors}"
