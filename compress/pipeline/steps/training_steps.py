"""The steps that train: a teacher, its student, and what is left of that after pruning.

They tell how fast they were, by which later trainings are forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compress.data.splits.unlabelled_texts import UNLABELLED, unlabelled_rows
from compress.pipeline.forecast.estimate_shapes import shape_of_folder
from compress.pipeline.forecast.throughput_history import rates_of
from compress.pipeline.forecast.training_cost import asks
from compress.pipeline.graph import Done
from compress.pipeline.step_context import Workbench
from compress.recipe.schema import Teacher
from compress.recipe.training_schema import Distill, Finetune, FurtherTeacher, Prune, Student, Training

if TYPE_CHECKING:
    from compress.tasks.base import Row
    from compress.train.save_trained import TrainedModel


def finetune(
    bench: Workbench,
    teacher: Teacher,
    settings: Finetune | Literal[False],
    seed: int,
    cards: Sequence[Path],
    beside: Sequence[FurtherTeacher] = (),
) -> Done:
    """Make the teacher: fine-tuned, or taken as it is. Those that will teach ``beside`` it are looked at first."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.train.distillation.teachers import check_further_teacher
    from compress.train.finetune import finetune as train

    for named in beside:
        check_further_teacher(named, load_prepared(bench.inputs["data"]).info.task_info)
    made = train(
        teacher.source,
        bench.inputs["data"],
        settings,
        seed,
        bench.work,
        revision=teacher.revision,
        cards=cards,
        console=bench.console,
        track=bench.track,
    )
    return _done(bench, made, settings)


def distill(bench: Workbench, student: Student, settings: Distill | Literal[False], seed: int) -> Done:
    """Make the student out of the teacher; texts without an answer are learnt from where the plan has some."""
    from compress.train.distill import distill as train

    made = train(
        bench.inputs["finetune"],
        student,
        bench.inputs["data"],
        settings,
        seed,
        bench.work,
        console=bench.console,
        track=bench.track,
        unlabelled_rows=_unlabelled(bench),
    )
    return _done(bench, made, settings)


def prune(bench: Workbench, parent: str, settings: Prune, seed: int) -> Done:
    """Cut heads and neurons out of the student (or the teacher, where there is no student) and recover."""
    from compress.prune.prune_step import prune as cut

    made = cut(
        bench.inputs[parent],
        bench.inputs["finetune"],
        bench.inputs["data"],
        settings,
        seed,
        bench.work,
        console=bench.console,
        track=bench.track,
        unlabelled_rows=_unlabelled(bench),
    )
    return _done(bench, made, settings.recover)


def _unlabelled(bench: Workbench) -> Sequence[Row]:
    """Texts without an answer, where the plan has some."""
    folder = bench.inputs.get(UNLABELLED)
    return unlabelled_rows(folder) if folder else ()


def _done(bench: Workbench, made: TrainedModel, settings: Training | Literal[False]) -> Done:
    """The rows that went through a training, and how fast."""
    from compress.data.splits.prepare_splits import load_prepared

    if made.result is None or not settings or made.info.shape is None:
        return Done(made.rows_seen)
    teacher = shape_of_folder(bench.inputs.get("finetune"))
    asked = (teacher,) * (1 + len(settings.teachers)) if teacher and isinstance(settings, Distill) else ()
    select = load_prepared(bench.inputs["data"]).info.counts["select"]
    teachers = asked if asks(settings) else ()
    return Done(made.rows_seen, rates_of(made.result, made.info.shape, teachers, select, settings.restarts))
