"""Describes how each model of a run was made from another, for the report."""

from collections.abc import Mapping
from pathlib import Path

from compress.model_folder.model_history import ChosenSetting, EvaluationInfo, TrainingInfo, TrialInfo
from compress.model_folder.model_info import find_info
from compress.pipeline.graph import Plan
from compress.report.run_facts import Provenance
from compress.steps import STEPS
from compress.train.core.auto_settings import describe_chosen


def provenance(plan: Plan, folders: Mapping[str, Path]) -> dict[str, Provenance]:
    """How every model but the teacher began, of those whose folders exist."""
    models = {}
    for model in plan.evaluated:
        if (parent := plan.evaluated_parent(model.name)) and model.name in folders:
            info = find_info(folders[model.name])
            start = STEPS[model.section].start(model.shape, parent.name, folders.get(parent.name))
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


def curves(plan: Plan, folders: Mapping[str, Path]) -> dict[str, tuple[EvaluationInfo, ...]]:
    """Return by trained model its evaluations, where there was more than one."""
    histories = {name: training.history for name, training in _trainings(plan, folders).items()}
    return {name: history for name, history in histories.items() if len(history) > 1}


def _trainings(plan: Plan, folders: Mapping[str, Path]) -> dict[str, TrainingInfo]:
    """Return how each model whose folder exists was trained."""
    trained = [model.name for model in plan.models if model.training and model.name in folders]
    infos = {name: find_info(folders[name]) for name in trained}
    return {name: info.training for name, info in infos.items() if info and info.training}
