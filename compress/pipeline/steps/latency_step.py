"""The steps that measure a latency table before anything is trained: its shape and length, the table, the goal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.errors import UsageError
from compress.model_info import ShapeInfo
from compress.model_shapes import shape_of_folder, student_shape
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.measure_step import sample_texts
from compress.prune.latency_table import LATENCY_STEP, TABLE_FILE, read_table, unreachable, wanted_speedup
from compress.recipe.measure_schema import Target
from compress.recipe.prune_schema import PruneTo
from compress.recipe.schema import Recipe
from compress.storage.atomic_write import write_model

if TYPE_CHECKING:
    from compress.data.splits.prepare_splits import PreparedData

WORKLOAD_FILE = "workload.json"


def workload(context: StepContext, recipe: Recipe, target: Target, cards: Sequence[Path]) -> None:
    """Write the shape of the model that will be pruned, and the length of a typical call at the target."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.models.fetch import fetch

    folder = fetch(recipe.teacher.source, recipe.teacher.revision, cards)
    student = recipe.student
    if student and student.source:
        folder = fetch(student.source, student.revision, cards)
    shape = shape_of_folder(folder)
    if shape is None:
        raise UsageError(f"{folder} does not give its shape, without which no latencies can be measured.")
    roles, length = load_prepared(context.inputs["data"]), target.length
    if length == "data":
        length = _typical_length(roles, folder, target.batch, recipe.task.data.split_seed)
    content = {"shape": (student_shape(shape, student) if student else shape).model_dump(mode="json"), "length": length}
    context.write_json(WORKLOAD_FILE, content)


def latency(context: StepContext, variant: str, threads: int, batch: int, round_to: int) -> None:
    """Measure the latency table of that shape and length on this machine."""
    from compress.prune.measure_latency import measure_latency
    from compress.runtime.predictor import Placement

    shape, length = _read_workload(context.inputs["workload"])
    placement = Placement("cpu", threads)
    table = measure_latency(shape, variant, placement, batch, length, round_to=round_to, console=context.console)
    write_model(context.work / TABLE_FILE, table)


def check(context: StepContext, to: PruneTo, round_to: int) -> None:
    """Refuse a goal that models of this shape cannot reach, before one is trained."""
    shape, _ = _read_workload(context.inputs["workload"])
    table = read_table(context.inputs[LATENCY_STEP] / TABLE_FILE)
    if reason := unreachable(table, shape, to, round_to):
        raise UsageError(f"prune.to: {reason}")
    largest = table.largest_speedup(shape, round_to)
    reach = f"at most {largest:.1f} times faster in {table.variant}, with texts of {table.length} word pieces"
    wanted = "" if to.p50 is None else f"; {to.p50:g} ms are {wanted_speedup(to, table, shape):g} times faster"
    context.console.note(f"latency: {reach}{wanted}")
    context.write_json("speedup.json", {"largest": largest})


def _read_workload(folder: Path) -> tuple[ShapeInfo, int]:
    content: dict[str, Any] = json.loads((folder / WORKLOAD_FILE).read_bytes())
    return ShapeInfo.model_validate(content["shape"]), int(content["length"])


def _typical_length(roles: PreparedData, folder: Path, batch: int, seed: int) -> int:
    """Return the median over the calls that the timing session makes of the word pieces of their batch."""
    import numpy as np

    from compress.measure.timing.timing_inputs import make_calls
    from compress.models.load_save import load_tokenizer, read_config
    from compress.tasks import kind_of
    from compress.train.core.training_data import fast_tokenizer

    task = roles.info.task_info
    kind, tokens = kind_of(task), fast_tokenizer(read_config(folder), load_tokenizer(folder))
    lengths = []
    for call in make_calls(sample_texts(roles.rows("test"), kind), batch, seed):
        examples = [each for text in call for each in kind.examples(kind.from_input(text, task), task, tokens)]
        lengths.append(kind.collate(examples[:batch], tokens.pad_id)["input_ids"].shape[1])
    return int(np.median(lengths))
