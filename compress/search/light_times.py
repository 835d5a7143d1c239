"""How long students without attention and the teacher take, known before they are trained: untrained ones are timed.

Their time depends on their settings and on the length of the texts, and on no weight. The teacher is timed in PyTorch,
where the budget has a ratio to that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from compress.environment import describe, versions
from compress.errors import CompressError
from compress.model_sources import identity
from compress.pipeline.steps.latency_step import read_workload
from compress.recipe.schema import Teacher
from compress.recipe.student_schema import LightStudent
from compress.runtimes import RUNTIMES
from compress.steps.model_step import hashed_settings
from compress.storage.atomic_write import write_model
from compress.storage.stored_info import Info, up_to

if TYPE_CHECKING:
    from compress.model_folder.model_info import TaskInfo
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext
    from compress.runtime.predictor import Placement
    from compress.tasks.base import Arrays

LIGHT_TIMES, TIMING, TIMES_FILE = "light-times", "timing untrained models", "light_times.json"
"""The step that times them, its kind, as a run shows it, and what it writes."""
VOCABULARY = 1000
"""Word pieces of the timed models: looking vectors up takes as long in any vocabulary."""


class LightTimes(Info):
    """Milliseconds of a call."""

    schema_version: Annotated[int, up_to(1)] = 1
    milliseconds: Mapping[str, float]
    """Of each student without attention, by its name."""
    teacher: float | None = None
    """In PyTorch fp32; None where the budget has no ratio to that."""


def add_light_times(plan: Plan, cards: Sequence[Path], students: Mapping[str, LightStudent]) -> None:
    """The step that times students without attention, and the teacher if the budget needs it, at the first target."""
    target, teacher = plan.recipe.targets[0], plan.recipe.teacher
    runtimes: tuple[str, ...] = ("numpy", "onnxruntime")
    settings: dict[str, Any] = {"students": {name: hashed_settings(each) for name, each in students.items()}}
    settings |= {"threads": target.threads, "batch": target.batch}
    bound: dict[str, Any] = {"students": students, "threads": target.threads, "batch": target.batch}
    if any(budget.speedup and budget.target in (None, target.title) for budget in plan.recipe.budget):
        settings["teacher"] = identity(teacher.source, teacher.revision, cards)
        bound |= {"teacher": teacher, "cards": tuple(cards)}
        runtimes = (*runtimes, "torch")
    libraries = versions([name for each in runtimes for name in RUNTIMES[each].libraries])
    settings |= {"machine": describe().fingerprint, "versions": libraries}
    plan.add(LIGHT_TIMES, TIMING, settings, ["data", "workload"], partial(measure_light_times, **bound))


def measure_light_times(
    context: StepContext,
    students: Mapping[str, LightStudent],
    threads: int,
    batch: int,
    teacher: Teacher | None = None,
    cards: Sequence[Path] = (),
) -> None:
    """Write the milliseconds of a call of each student in its faster file, tables for numpy or ONNX; and the teacher's.

    ``teacher``: None where it is not timed.
    """
    from compress.data.splits.prepare_splits import load_prepared
    from compress.models.fetch import fetch
    from compress.prune.measure_latency import random_inputs, undisturbed_time
    from compress.runtime import open_predictor
    from compress.runtime.model_formats import FP32
    from compress.runtime.predictor import Placement

    task = load_prepared(context.inputs["data"]).info.task_info
    (shape, length), placement = read_workload(context.inputs["workload"]), Placement("cpu", threads)
    arrays = random_inputs(batch, length, min(VOCABULARY, shape.vocabulary or VOCABULARY))
    times = {name: milliseconds_of(student, task, placement, arrays) for name, student in students.items()}
    reference = None
    if teacher:
        try:
            folder = fetch(teacher.source, teacher.revision, cards)
            reference = undisturbed_time(open_predictor(folder, placement, FP32), arrays)
        except CompressError as error:
            context.console.warn(f"the teacher could not be timed, so no speed-up is ruled out: {error.message}")
    write_model(context.work / TIMES_FILE, LightTimes(milliseconds=times, teacher=reference))


def read_light_times(folder: Path) -> LightTimes:
    """Return what that step measured."""
    return LightTimes.model_validate_json((folder / TIMES_FILE).read_bytes())


def milliseconds_of(student: LightStudent, task: TaskInfo, placement: Placement, arrays: Arrays) -> float:
    """Return the milliseconds of a call of an untrained student."""
    from safetensors.torch import save_file

    from compress.export.builders.numpy_tables import tables_of
    from compress.export.builders.onnx import export_onnx_from_model
    from compress.prune.measure_latency import open_variant, undisturbed_time
    from compress.runtime.model_formats import ModelFile, export_variant
    from compress.runtime.numpy_runtime import NumpyPredictor
    from compress.train.light_student import build_light, untrained_config

    model = build_light(untrained_config(student, task, VOCABULARY), task, {}, seed=0)
    in_onnx = undisturbed_time(open_variant(export_onnx_from_model(model), "onnx-fp32", placement), arrays)
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "tables.safetensors"
        save_file(tables_of(model), file)
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(work)
        opened = NumpyPredictor(ModelFile(file, "numpy", file, None), placement, export_variant("numpy"))
        return min(in_onnx, undisturbed_time(opened, arrays))
