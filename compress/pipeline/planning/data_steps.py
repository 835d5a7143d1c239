"""Plans the steps that read data: the rows of every split, unlabelled texts, and columns to group scores by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from compress.data.loading.data_digest import PARTS, contents_digest
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.pipeline.graph import Plan
from compress.pipeline.steps import prepare_data
from compress.steps import steps_of
from compress.steps.hashed_settings import hashed_settings


def add_data(plan: Plan) -> None:
    """The step that reads the rows of every split."""
    recipe = plan.recipe
    task = hashed_settings(recipe.task)
    data = _without_unlabelled(task.pop("data"))
    del task["slices"]  # they have a step of their own: requesting others retrains no model
    del task["name"]  # only a label: recipes on the same rows share them and their teacher, whatever they are called
    if data["labelled"] is None:
        del data["labelled"]  # as before there was such a key
    data["contents"] = contents_digest(recipe.task.data)
    checks = tuple(step.check_rows for step in steps_of(recipe) if step.check_rows)
    run = partial(prepare_data.data, task=recipe.task, checks=checks)
    plan.add("data", "data", {"task": task, "data": data}, [], run)


def add_unlabelled(plan: Plan) -> None:
    """Unlabelled texts have a step of their own, for distillation and vocabularies: adding some changes no teacher."""
    recipe, data = plan.recipe, plan.recipe.task.data
    if not (data.has_unlabelled and any(step.reads_unlabelled(recipe) for step in steps_of(recipe))):
        return
    settings = {
        "contents": contents_digest(data, (UNLABELLED,)),
        "columns": list(recipe.task.text),
        "header": data.header.get(UNLABELLED, True) if isinstance(data.header, Mapping) else data.header,
        **({} if data.labelled is None else {"labelled": data.labelled}),
    }
    run = partial(prepare_data.unlabelled, task=recipe.task)
    plan.add(UNLABELLED, UNLABELLED, settings, ["data"], run)


def add_slices(plan: Plan) -> None:
    """The step that records the columns by which test scores are grouped, where the recipe names some."""
    recipe = plan.recipe
    if recipe.task.slices:
        run = partial(prepare_data.slices, task=recipe.task)
        plan.add("slices", "slices", {"columns": list(recipe.task.slices)}, ["data"], run, optional=True)


def _without_unlabelled(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the rows depend on besides their files, which are identified by contents and not by name."""
    rest = {key: value for key, value in data.items() if key not in PARTS}
    if isinstance(rest["header"], Mapping):
        rest["header"] = {part: header for part, header in rest["header"].items() if part != UNLABELLED} or True
    return rest
