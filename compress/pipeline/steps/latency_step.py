"""Pruning to a speed-up or a time: the steps that measure a latency table before anything is trained.

They are planned, checked and run here: the shape and length to measure at, the table, and whether the goal can be met.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.environment import describe, usable_cores, versions
from compress.errors import CompressError, ModelError, Problem, UsageError, nearest
from compress.measure.timing.schedule import make_calls
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import shape_of_folder, student_shape
from compress.model_sources import identity
from compress.pipeline.graph import Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.measure_step import sample_texts
from compress.prune.latency_table import LATENCY_STEP, TABLE_FILE, read_table, unreachable, wanted_speedup
from compress.quantize import QUANTIZERS, chosen_methods
from compress.recipe.measure_schema import Target
from compress.recipe.prune_schema import PruneTo
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import Student
from compress.runtime.predictor import Placement
from compress.runtimes import RUNTIMES
from compress.steps.distill_step import hashed_student
from compress.storage.atomic_write import write_model
from compress.storage.file_names import expanded_user
from compress.tasks import kind_of
from compress.variants import VARIANTS, competing_formats


def add_latency(plan: Plan, cards: Sequence[Path]) -> None:
    """The steps that measure a latency table on this machine, and refuse a goal that is out of its reach."""
    recipe = plan.recipe
    assert recipe.prune is not None
    add_table(plan, cards, recipe.student, recipe.prune.round_to)
    to, round_to = recipe.prune.to, recipe.prune.round_to
    assert to is not None
    goal = to.model_dump() | {"round_to": round_to}
    checked = partial(check, to=to, round_to=round_to)
    plan.add("check-speedup", "check-speedup", goal, ["workload", LATENCY_STEP], checked)


def add_table(plan: Plan, cards: Sequence[Path], student: Student | None, round_to: int) -> None:
    """The steps that measure a latency table of a student, or of the teacher, on this machine.

    The table depends on the encoder's shape and on the lengths of the texts, not on weights: it is measured before
    anything is trained, and other trainings share it.
    """
    recipe, target = plan.recipe, latency_target(plan.recipe)
    add_workload(plan, cards, student, target)
    settings: dict[str, Any] = {"threads": target.threads, "batch": target.batch, "round_to": round_to}
    variant = VARIANTS[latency_variant(recipe)]
    measure = partial(latency, variant=variant.name, **settings)
    settings |= {"variant": variant.name, "version": variant.version, "machine": describe().fingerprint}
    settings |= {"versions": versions(RUNTIMES[variant.runtime].libraries)}
    plan.add(LATENCY_STEP, LATENCY_STEP, settings, ["workload"], measure)


def add_workload(plan: Plan, cards: Sequence[Path], student: Student | None, target: Target) -> None:
    """The step that finds the shape of a student, or of the teacher, and how long typical texts are at a target."""
    recipe, teacher = plan.recipe, plan.recipe.teacher
    hashed: dict[str, Any] = {"teacher": identity(teacher.source, teacher.revision, cards)}
    hashed["seed"] = recipe.task.data.split_seed  # which texts are typical depends on no training
    hashed["student"] = student and hashed_student(student)
    if student and student.source:
        hashed["student"]["source"] = identity(student.source, student.revision, cards)
    hashed |= {"batch": target.batch, "length": target.length}
    run = partial(workload, recipe=recipe, student=student, target=target, cards=tuple(cards))
    plan.add("workload", "workload", hashed, ["data"], run)


def latency_target(recipe: Recipe) -> Target:
    """Return the target at which the goal is measured; raise `UsageError` where it cannot be."""
    named = recipe.prune.target if recipe.prune else None
    targets = {target.title: target for target in recipe.targets}
    if named is not None and named not in targets:
        raise UsageError(f"no target is called '{named}'{nearest(named, targets)}")
    target = targets[named] if named else recipe.targets[0]
    elsewhere = (
        "; name another target (prune.target), give latencies measured elsewhere (prune.latency_table),"
        " or shares to remove: prune: {heads: 0.5, ffn: 0.5}"
    )
    if target.device != "cpu":
        raise UsageError(f"latencies are measured on the CPU, not on {target.device}{elsewhere}")
    if target.threads > usable_cores():
        needed = f"{target.title} needs {target.threads} cores"
        raise UsageError(f"{needed}, and this machine has {usable_cores()}{elsewhere}")
    return target


def latency_variant(recipe: Recipe) -> str:
    """Return the variant in which the goal is measured: the recipe's, else INT8 where it quantizes, else fp32.

    The table and the cut build it for timing alone, so it need not be among the variants that compete.
    """
    if recipe.prune and recipe.prune.variant:
        return recipe.prune.variant
    if recipe.quantize:
        methods = chosen_methods(recipe.quantize.methods, competing_formats(recipe))
        return QUANTIZERS[next((each for each in methods if QUANTIZERS[each].graph_builder), "dynamic")].name
    if not recipe.export:
        hint = "export a format (export: onnx), name a variant (prune.variant), or give shares: prune: {heads: 0.5}"
        raise UsageError("the speed-up would be measured in onnx-fp32, and this recipe exports nothing", hint=hint)
    return "onnx-fp32"


def goal_problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield what the recipe's goal of speed-up names and does not exist."""
    if recipe.prune is None or not recipe.prune.has_latency_goal:
        return
    checks: dict[str, Callable[[], object]] = {"variant": partial(latency_variant, recipe)}
    if recipe.prune.latency_table is None:
        checks["target"] = partial(latency_target, recipe)
    else:
        checks["latency_table"] = partial(_check_variant, recipe, expanded_user(recipe.prune.latency_table))
    for key, check in checks.items():
        try:
            check()
        except CompressError as error:
            yield Problem(("prune", key), error.full_message)


def _check_variant(recipe: Recipe, path: Path) -> None:
    table, variant = read_table(path), latency_variant(recipe)
    if table.variant != variant:
        raise ModelError(f"{path} was measured in {table.variant}, and the goal is of {variant} (prune.variant)")


WORKLOAD_FILE = "workload.json"


def workload(
    context: StepContext, recipe: Recipe, student: Student | None, target: Target, cards: Sequence[Path]
) -> None:
    """Write the shape of the model of which others will be cut, and the length of a typical call at the target."""
    from compress.models.fetch import fetch

    folder = fetch(recipe.teacher.source, recipe.teacher.revision, cards)
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

    shape, length = read_workload(context.inputs["workload"])
    placement = Placement("cpu", threads)
    table = measure_latency(shape, variant, placement, batch, length, round_to=round_to, console=context.console)
    write_model(context.work / TABLE_FILE, table)


def check(context: StepContext, to: PruneTo, round_to: int) -> None:
    """Refuse a goal that models of this shape cannot reach, before one is trained."""
    shape, _ = read_workload(context.inputs["workload"])
    table = read_table(context.inputs[LATENCY_STEP] / TABLE_FILE)
    if reason := unreachable(table, shape, to, round_to):
        raise UsageError(f"prune.to: {reason}")
    largest = table.largest_speedup(shape, round_to)
    reach = f"at most {largest:.1f} times faster in {table.variant}, with texts of {table.length} word pieces"
    wanted = "" if to.p50 is None else f"; {to.p50:g} ms are {wanted_speedup(to, table, shape):g} times faster"
    context.console.note(f"latency: {reach}{wanted}")
    context.write_json("speedup.json", {"largest": largest})


def read_workload(folder: Path) -> tuple[ShapeInfo, int]:
    """Return the shape of the model of which others will be cut, and the length of a typical call."""
    content: dict[str, Any] = json.loads((folder / WORKLOAD_FILE).read_bytes())
    return ShapeInfo.model_validate(content["shape"]), int(content["length"])


def _typical_length(roles: PreparedData, folder: Path, batch: int, seed: int) -> int:
    """Return the median over the calls that the timing session makes of the word pieces of their batch."""
    from compress.models.load_save import load_tokenizer, read_config
    from compress.train.core.training_data import fast_tokenizer

    task = roles.info.task_info
    kind, tokens = kind_of(task), fast_tokenizer(read_config(folder), load_tokenizer(folder))
    lengths = []
    for call in make_calls(sample_texts(roles.rows("test"), kind), batch, seed):
        examples = [each for text in call for each in kind.examples(kind.from_input(text, task), task, tokens)]
        lengths.append(kind.collate(examples[:batch], tokens.pad_id)["input_ids"].shape[1])
    return int(np.median(lengths))
