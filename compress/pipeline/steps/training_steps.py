"""The steps that make models: the teacher, its students, and what remains of a model after pruning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compress.data.splits.unlabelled_texts import UNLABELLED, unlabelled_rows
from compress.model_info import ShapeInfo
from compress.model_shapes import shape_of_folder
from compress.pipeline.forecast.training_cost import runs_teacher, throughput_of
from compress.pipeline.graph import StepResult
from compress.pipeline.step_context import StepContext
from compress.recipe.schema import Teacher
from compress.recipe.training_schema import Distill, Finetune, FurtherTeacher, Prune, Student, Training

if TYPE_CHECKING:
    from compress.tasks.base import Row
    from compress.train.save_trained import TrainedModel


def finetune(
    context: StepContext,
    teacher: Teacher,
    settings: Finetune | Literal[False],
    seed: int,
    cards: Sequence[Path],
    further: Sequence[FurtherTeacher] = (),
) -> StepResult:
    """Make the teacher: fine-tuned, or taken as it is. ``further`` teachers are checked first."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.train.distillation.teachers import check_further_teacher
    from compress.train.finetune import finetune as train

    for named in further:
        check_further_teacher(named, load_prepared(context.inputs["data"]).info.task_info)
    trained = train(
        teacher.source,
        context.inputs["data"],
        settings,
        seed,
        context.work,
        revision=teacher.revision,
        cards=cards,
        console=context.console,
        track=context.track,
    )
    return _result(context, trained, settings, None)


def distill(
    context: StepContext,
    teacher: str,
    student: Student,
    settings: Distill | Literal[False],
    seed: int,
    step: str = "distill",
) -> StepResult:
    """Make a student of the teacher; it learns from unlabelled texts too where the plan has some."""
    from compress.train.distill import distill as train

    trained = train(
        context.inputs[teacher],
        student,
        context.inputs["data"],
        settings,
        seed,
        context.work,
        step=step,
        console=context.console,
        track=context.track,
        unlabelled_rows=_unlabelled(context),
    )
    return _result(context, trained, settings, teacher)


def cut(context: StepContext, teacher: str, parent: str, settings: Prune, seed: int) -> StepResult:
    """Score the parent model's heads and neurons and remove the least important ones."""
    from compress.prune.cut_and_recover import BATCH_SIZE
    from compress.prune.cut_and_recover import cut as run

    parent_folder, teacher_folder, data = context.inputs[parent], context.inputs[teacher], context.inputs["data"]
    run(parent_folder, teacher_folder, data, settings, seed, context.work, console=context.console)
    return StepResult(float(settings.batches * BATCH_SIZE))


def recover(context: StepContext, teacher: str, pruned: str, settings: Distill, seed: int) -> StepResult:
    """Train a model that was cut: it is distilled as a finished student."""
    return distill(context, teacher, Student(source=str(context.inputs[pruned])), settings, seed, step="recover")


def _unlabelled(context: StepContext) -> Sequence[Row]:
    folder = context.inputs.get(UNLABELLED)
    return unlabelled_rows(folder) if folder else ()


def _result(
    context: StepContext, trained: TrainedModel, settings: Training | Literal[False], teacher: str | None
) -> StepResult:
    """The rows that went through a training, and its throughput."""
    from compress.data.splits.prepare_splits import load_prepared

    if trained.result is None or not settings or trained.info.shape is None:
        return StepResult(trained.rows_seen)
    shape = shape_of_folder(context.inputs[teacher]) if teacher else None
    teachers: tuple[ShapeInfo, ...] = ()
    if shape is not None and isinstance(settings, Distill) and runs_teacher(settings):
        teachers = (shape,) * (1 + len(settings.teachers))
    rows = load_prepared(context.inputs["data"]).info.counts["train"]
    rates = throughput_of(trained.result, settings, trained.info.shape, teachers, rows)
    return StepResult(trained.rows_seen, rates.model_dump(mode="json") if rates else None)
