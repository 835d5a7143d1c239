"""How long all candidates take, known before they are trained: untrained models of their sizes are timed.

Time depends on sizes and on the length of the texts, and on no weight. Parts of a shared student are timed as whole
models of some depths and sizes, between which times change steadily: what heads and neurons cost depends on the depth,
since the weights of few layers stay in a core's cache. The teacher is timed in PyTorch, where the budget has a ratio to
that.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from compress.environment import describe, versions
from compress.errors import CompressError
from compress.model_shapes import parts_of
from compress.model_sources import identity
from compress.pipeline.steps.latency_step import add_workload, latency_variant, read_workload
from compress.recipe.schema import Teacher
from compress.recipe.student_schema import LightStudent, Part
from compress.runtimes import RUNTIMES
from compress.steps.model_step import hashed_settings
from compress.steps.shared_step import whole_student
from compress.storage.atomic_write import write_model
from compress.storage.stored_info import Info, up_to
from compress.variants import VARIANTS

if TYPE_CHECKING:
    from compress.console import Console
    from compress.model_folder.model_info import ShapeInfo, TaskInfo
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext
    from compress.prune.measure_latency import Comparison
    from compress.runtime.predictor import Placement, Predictor

TIMING = "timing untrained models"
"""The kind of both steps, as a run shows it."""
PART_TIMES, PART_TIMES_FILE = "time-parts", "part_times.json"
"""The step that times models as large as parts, and what it writes."""
LIGHT_TIMES, LIGHT_TIMES_FILE = "light-times", "light_times.json"
"""The step that times students without attention and the teacher, and what it writes."""
POINTS = (4, 3, 3)
"""Depths, numbers of heads and widths that are timed, at most."""
SECONDS = 0.8
"""For each of these models."""


class PartTimes(Info):
    """Milliseconds of a call of whole models with these sizes in every layer."""

    schema_version: Annotated[int, up_to(1)] = 1
    variant: str
    """The variant that was timed: `onnx-int8`."""
    largest: float
    """Milliseconds of the largest part, of which the others were measured as a share."""
    session: Mapping[str, Any] = {}
    """Session options, the fastest ones on this machine."""
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    ffn: tuple[int, ...]
    milliseconds: tuple[tuple[tuple[float, ...], ...], ...]
    """By depth, number of heads and width, in this order."""

    def of(self, part: Part) -> float:
        """Return the milliseconds of a part, interpolated along each size."""
        times = np.array(self.milliseconds)
        for size, known in ((part.layers, self.layers), (part.heads, self.heads), (part.ffn, self.ffn)):
            times = np.apply_along_axis(partial(np.interp, size, known), 0, times)
        return float(times)


class LightTimes(Info):
    """Milliseconds of a call."""

    schema_version: Annotated[int, up_to(1)] = 1
    milliseconds: Mapping[str, float]
    """Of each student without attention, by its name."""
    teacher: float | None = None
    """In PyTorch fp32; None where the budget has no ratio to that."""


def add_part_times(plan: Plan, cards: Sequence[Path]) -> None:
    """The step that times models as large as parts of the shared student, at the first target."""
    recipe, target = plan.recipe, plan.recipe.targets[0]
    add_workload(plan, cards, whole_student(recipe.shared), target)
    variant = VARIANTS[latency_variant(recipe)]
    settings: dict[str, Any] = {"threads": target.threads, "batch": target.batch}
    measure = partial(measure_part_times, variant=variant.name, **settings)
    settings |= {"variant": variant.name, "version": variant.version, "machine": describe().fingerprint}
    settings |= {"versions": versions(RUNTIMES[variant.runtime].libraries)}
    plan.add(PART_TIMES, TIMING, settings, ["workload"], measure)


def measure_part_times(context: StepContext, variant: str, threads: int, batch: int) -> None:
    """Write the milliseconds of models as large as parts."""
    from compress.runtime.predictor import Placement

    shape, length = read_workload(context.inputs["workload"])
    turns = Turns(shape, variant, Placement("cpu", threads), batch, length)
    write_model(context.work / PART_TIMES_FILE, time_parts(turns, context.console))


class Turns:
    """Times models in turns with the largest part: a machine's speed changes within minutes, a ratio hardly does."""

    def __init__(
        self,
        shape: ShapeInfo,
        variant: str,
        placement: Placement,
        batch: int,
        length: int,
        session: Mapping[str, Any] | None = None,
    ) -> None:
        """Open the largest part of this shape; ``session``: its options, by default the fastest ones."""
        from compress.export.tune_ort_session import fastest_options
        from compress.prune.measure_latency import open_variant, random_inputs
        from compress.prune.random_models import VOCABULARY, RandomModels

        self.shape, self.variant, self.placement = shape, variant, placement
        self.arrays = random_inputs(batch, length, min(VOCABULARY, shape.vocabulary or VOCABULARY))
        self._models = RandomModels(shape, length)
        whole = self._models.graph(len(shape.heads), self._models.most)
        self.session = session
        if self.session is None:
            self.session, _ = fastest_options(
                lambda each: partial(open_variant(whole, variant, placement, each).predict, self.arrays)
            )
        self._largest = open_variant(whole, variant, placement, self.session)

    def part(self, layers: int, heads: int, ffn: int) -> Predictor:
        """Return an untrained part of this size."""
        from compress.prune.measure_latency import open_variant

        return open_variant(self._models.graph(layers, (heads, ffn)), self.variant, self.placement, self.session or {})

    def compare(self, model: Predictor) -> Comparison:
        """Return the milliseconds of the largest part, and the model's as a share of these."""
        from compress.prune.measure_latency import compare_times

        return compare_times(self._largest, model, self.arrays, SECONDS)


def time_parts(turns: Turns, console: Console) -> PartTimes:
    """Return the times of models as large as parts."""
    parts = parts_of(turns.shape)
    axes = [
        _spread({getattr(part, size) for part in parts}, count)
        for size, count in zip(("layers", "heads", "ffn"), POINTS, strict=True)
    ]
    compared = []
    with console.progress(math.prod(map(len, axes)), "part times", "models") as progress:
        for sizes in itertools.product(*axes):
            compared.append(turns.compare(turns.part(*sizes)))
            progress.advance(note="depth {}, heads {}, FFN {}".format(*sizes))
    unit = float(np.median([each.first for each in compared]))
    times = unit * np.reshape([each.ratio for each in compared], [len(axis) for axis in axes])
    layers, heads, ffn = axes
    return PartTimes(
        variant=turns.variant,
        largest=unit,
        session=turns.session or {},
        layers=layers,
        heads=heads,
        ffn=ffn,
        milliseconds=times.tolist(),
    )


def _spread(sizes: Collection[int], count: int) -> tuple[int, ...]:
    """Return at most ``count`` sizes, the least and the largest among them, the others evenly spread by ratio."""
    known = np.array(sorted(sizes))
    goals = np.geomspace(known[0], known[-1], count)
    return tuple(sorted({int(known[np.abs(np.log(known / goal)).argmin()]) for goal in goals}))


def read_part_times(folder: Path) -> PartTimes:
    """Return what that step measured."""
    return PartTimes.model_validate_json((folder / PART_TIMES_FILE).read_bytes())


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
    plan.add(LIGHT_TIMES, TIMING, settings, ["data", "workload", PART_TIMES], partial(measure_light_times, **bound))


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
    from compress.runtime import open_predictor
    from compress.runtime.model_formats import FP32
    from compress.runtime.predictor import Placement

    task, of_parts = load_prepared(context.inputs["data"]).info.task_info, read_part_times(context.inputs[PART_TIMES])
    shape, length = read_workload(context.inputs["workload"])
    turns = Turns(shape, of_parts.variant, Placement("cpu", threads), batch, length, of_parts.session)
    times = {name: of_parts.largest * light_ratio(student, task, turns) for name, student in students.items()}
    reference = None
    if teacher:
        try:
            folder = fetch(teacher.source, teacher.revision, cards)
            reference = of_parts.largest * turns.compare(open_predictor(folder, turns.placement, FP32)).ratio
        except CompressError as error:
            context.console.warn(f"the teacher could not be timed, so no speed-up is ruled out: {error.message}")
    write_model(context.work / LIGHT_TIMES_FILE, LightTimes(milliseconds=times, teacher=reference))


def read_light_times(folder: Path) -> LightTimes:
    """Return what that step measured."""
    return LightTimes.model_validate_json((folder / LIGHT_TIMES_FILE).read_bytes())


def light_ratio(student: LightStudent, task: TaskInfo, turns: Turns) -> float:
    """Return the time of an untrained student in its faster file, as a share of the largest part's."""
    from safetensors.torch import save_file

    from compress.export.builders.numpy_tables import tables_of
    from compress.export.builders.onnx import export_onnx_from_model
    from compress.prune.measure_latency import open_variant
    from compress.prune.random_models import VOCABULARY
    from compress.runtime.model_formats import ModelFile, export_variant
    from compress.runtime.numpy_runtime import NumpyPredictor
    from compress.train.light_student import build_light, untrained_config

    model = build_light(untrained_config(student, task, VOCABULARY), task, {}, seed=0)
    in_onnx = open_variant(export_onnx_from_model(model), "onnx-fp32", turns.placement)
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "tables.safetensors"
        save_file(tables_of(model), file)
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(work)
        in_numpy = NumpyPredictor(ModelFile(file, "numpy", file, None), turns.placement, export_variant("numpy"))
        return min(turns.compare(each).ratio for each in (in_onnx, in_numpy))
