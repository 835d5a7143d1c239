"""How long students without attention take, known before they are trained: untrained ones are timed.

Their time depends on their settings and on the length of the texts, and on no weight.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.environment import describe, versions
from compress.pipeline.steps.latency_step import read_workload
from compress.recipe.student_schema import LightStudent
from compress.runtimes import RUNTIMES
from compress.steps.model_step import hashed_settings

if TYPE_CHECKING:
    from compress.model_folder.model_info import TaskInfo
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext
    from compress.runtime.predictor import Placement
    from compress.tasks.base import Arrays

LIGHT_TIMES, TIMING, TIMES_FILE = "light-times", "timing students without attention", "light_times.json"
"""The step that times them, its kind, as a run shows it, and what it writes."""
VOCABULARY = 1000
"""Word pieces of the timed models: looking vectors up takes as long in any vocabulary."""


def add_light_times(plan: Plan, cards: Sequence[Path], students: Mapping[str, LightStudent]) -> None:
    """The step that times students without attention at the first target."""
    target = plan.recipe.targets[0]
    libraries = versions([name for each in ("numpy", "onnxruntime") for name in RUNTIMES[each].libraries])
    settings: dict[str, Any] = {"students": {name: hashed_settings(each) for name, each in students.items()}}
    settings |= {"threads": target.threads, "batch": target.batch}
    settings |= {"machine": describe().fingerprint, "versions": libraries}
    run = partial(measure_light_times, students=students, threads=target.threads, batch=target.batch)
    plan.add(LIGHT_TIMES, TIMING, settings, ["data", "workload"], run)


def measure_light_times(context: StepContext, students: Mapping[str, LightStudent], threads: int, batch: int) -> None:
    """Write the milliseconds of a call of each student in its faster file: tables for numpy, or ONNX."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.prune.measure_latency import random_inputs
    from compress.runtime.predictor import Placement

    task = load_prepared(context.inputs["data"]).info.task_info
    arrays = random_inputs(batch, read_workload(context.inputs["workload"])[1], VOCABULARY)
    placement = Placement("cpu", threads)
    times = {name: milliseconds_of(student, task, placement, arrays) for name, student in students.items()}
    context.write_json(TIMES_FILE, {"milliseconds": times})


def read_light_times(folder: Path) -> dict[str, float]:
    """Return the milliseconds of a call of each student, by its name."""
    times: dict[str, float] = json.loads((folder / TIMES_FILE).read_bytes())["milliseconds"]
    return times


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
