"""The steps that make models: the teacher, its students, and what remains of a model after pruning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from compress.data.splits.unlabelled_texts import UNLABELLED, unlabelled_rows
from compress.model_shapes import shape_of_folder
from compress.pipeline.forecast.training_costs import probe_count, teachers_run, throughput_of
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.latency_step import LATENCY_STEP
from compress.pipeline.steps.scoring_steps import ANSWERS_FILE
from compress.prune.latency_table import TABLE_FILE, read_table
from compress.recipe.distill_schema import Distill, QuantizationAware
from compress.recipe.prune_schema import Prune
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import Student, Vocabulary
from compress.recipe.training_schema import Training
from compress.tasks import kind_of

if TYPE_CHECKING:
    from compress.train.save_trained import TrainedModel

Rates = Mapping[str, Any] | None


def finetune(context: StepContext, recipe: Recipe, cards: Sequence[Path]) -> Rates:
    """Make the teacher: fine-tuned, or taken as it is. Further teachers are checked first.

    What it was fine-tuned from is a baseline, whose predictions on test are stored beside it.
    """
    import numpy as np

    from compress.data.splits.prepare_splits import load_prepared
    from compress.train.distillation.teachers import check_further_teacher
    from compress.train.finetune import finetune as train

    data, teacher = context.inputs["data"], recipe.teacher
    for _, settings in recipe.distillations():
        for named in settings.teachers:
            check_further_teacher(named, load_prepared(data).info.task_info)
    reporting: dict[str, Any] = {"console": context.console, "track": context.track}
    origin: dict[str, Any] = {"revision": teacher.revision, "cards": cards}
    trained = train(teacher.source, data, recipe.finetune, recipe.seed, context.work, **origin, **reporting)
    if trained.start is not None:
        np.savez(context.work / ANSWERS_FILE, test=trained.start)
    return _rates(context, trained, recipe.finetune)


def distill(
    context: StepContext,
    teacher: str,
    student: Student,
    settings: Distill | Literal[False],
    seed: int,
    step: str = "distill",
) -> Rates:
    """Make a student of the teacher; it learns from unlabelled texts too where the plan has some."""
    from compress.train.distill import distill as train

    folder, unlabelled = context.inputs[teacher], context.inputs.get(UNLABELLED)
    options: dict[str, Any] = {"step": step, "console": context.console, "track": context.track}
    options["unlabelled_rows"] = unlabelled_rows(unlabelled) if unlabelled else ()
    trained = train(folder, student, context.inputs["data"], settings, seed, context.work, **options)
    return _rates(context, trained, settings, teacher)


def cut(
    context: StepContext, teacher: str, parent: str, settings: Prune, seed: int, is_later: bool
) -> Mapping[str, Any] | None:
    """Score the parent model's heads and neurons and remove the least important ones."""
    from compress.prune.cut_and_recover import cut as run

    parent_folder, teacher_folder, data = context.inputs[parent], context.inputs[teacher], context.inputs["data"]
    latency = read_table(context.inputs[LATENCY_STEP] / TABLE_FILE) if LATENCY_STEP in context.inputs else None
    options: dict[str, Any] = {"latency": latency, "is_later": is_later, "console": context.console}
    speedup = run(parent_folder, teacher_folder, data, settings, seed, context.work, **options)
    return speedup.model_dump(mode="json") if speedup else None


def recover(
    context: StepContext, teacher: str, pruned: str, settings: Distill, seed: int, step: str = "recover"
) -> Rates:
    """Train a model that was cut, or whose vocabulary was: it is distilled as a finished student."""
    return distill(context, teacher, Student(source=str(context.inputs[pruned])), settings, seed, step=step)


def vocabulary(context: StepContext, parent: str, rule: Vocabulary, longest: int | None) -> None:
    """Remove the word pieces and positions that the parent model does not need for the task."""
    from compress.prune.vocabulary.prune_vocabulary import prune_vocabulary

    texts = context.inputs.get(UNLABELLED)
    options: dict[str, Any] = {"unlabelled_rows": unlabelled_rows(texts) if texts else (), "console": context.console}
    prune_vocabulary(context.inputs[parent], context.inputs["data"], rule, longest, context.work, **options)


def quantization_aware(context: StepContext, parent: str, settings: QuantizationAware, seed: int) -> Rates:
    """Train the parent model while it computes as in INT8."""
    from compress.quantize.qat.quantization_aware import quantization_aware as train

    data, texts = context.inputs["data"], context.inputs.get(UNLABELLED)
    options: dict[str, Any] = {"console": context.console, "track": context.track}
    options["unlabelled_rows"] = unlabelled_rows(texts) if texts else ()
    trained = train(context.inputs[parent], data, settings, seed, context.work, **options)
    return _rates(context, trained, settings, parent)


def _rates(
    context: StepContext, trained: TrainedModel, settings: Training | Literal[False], teacher: str | None = None
) -> Rates:
    """Return the throughput of a training."""
    from compress.data.splits.prepare_splits import load_prepared

    if trained.result is None or not settings or trained.info.shape is None:
        return None
    teachers = teachers_run(settings, shape_of_folder(context.inputs[teacher]) if teacher else None)
    info, result, shape = load_prepared(context.inputs["data"]).info, trained.result, trained.info.shape
    rates = throughput_of(result, settings, shape, teachers, info.counts["train"])
    if rates and (probe := trained.info.probe) and probe.operations:
        operations = probe_count(settings, kind_of(info.task_info).head) * probe.operations
        rates = rates.model_copy(update={"probe_operations": operations})
    return rates.model_dump(mode="json") if rates else None
