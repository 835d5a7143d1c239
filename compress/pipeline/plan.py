"""From a resolved recipe to the list of steps, each with its fingerprint: nothing runs, nothing heavy is loaded.

The steps over data, and those over all models and variants, are planned here; models by their records in
`compress.steps`, variants in `plan_variants`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from compress.data.loading.data_digest import PARTS, contents_digest
from compress.data.loading.file_columns import check_columns
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.environment import cuda_devices, cuda_version, describe, driver_version, versions
from compress.model_sources import identity
from compress.pipeline.graph import Plan
from compress.pipeline.plan_cascades import add_cascades
from compress.pipeline.plan_variants import add_variants
from compress.pipeline.steps import prepare_data
from compress.pipeline.steps.build_report import report
from compress.pipeline.steps.latency_step import add_latency
from compress.pipeline.steps.measure_step import measure
from compress.pipeline.steps.package_format import PACKAGE_FORMAT, package_format
from compress.pipeline.steps.package_step import package
from compress.pipeline.steps.probe_step import probe
from compress.pipeline.steps.publish_step import is_in_zoo, publish
from compress.pipeline.steps.scoring_steps import floor, quality
from compress.pipeline.steps.select_step import rules_of, select
from compress.pipeline.strip_paths import recipe_without_paths
from compress.recipe.measure_schema import Measure
from compress.recipe.schema import Recipe
from compress.recipe.task_schema import Task
from compress.runtimes import RUNTIMES
from compress.steps import steps_of
from compress.steps.model_step import ModelStep, hashed_settings
from compress.storage.file_digests import file_digest
from compress.storage.file_names import expanded_user
from compress.tasks import KINDS
from compress.variants import VARIANTS, packaged_formats

ModelPlanner = Callable[[Plan, Sequence[Path]], None]
"""Adds one model and its step to a plan; the second argument are folders of cards."""


def make_plan(
    recipe: Recipe,
    cards: Sequence[Path] = (),
    *,
    limits: bool = True,
    left_out: Mapping[str, str] | None = None,
    models: Sequence[ModelPlanner] | None = None,
) -> Plan:
    """Lay out the steps of a resolved recipe.

    Args:
        recipe: with every name resolved.
        cards: folders of cards besides the shipped ones.
        limits: measure the machine's own limits too; a smoke run does without.
        left_out: a warning for each format that `export: all` left out, by format.
        models: plans each model step; by default those of the recipe's sections.
    """
    plan = Plan(recipe, left_out=left_out or {})
    check_columns(recipe.task)
    add_data(plan)
    add_unlabelled(plan)
    add_slices(plan)
    for add_model in default_models(recipe) if models is None else models:
        add_model(plan, cards)
    absent = [target.title for target in recipe.targets if target.device == "cuda"]
    if absent and not cuda_devices():
        plan.missing_targets = dict.fromkeys(absent, "this machine has no CUDA device")
    for model in plan.evaluated:
        add_variants(plan, model)
    add_cascades(plan)
    add_results(plan, cards, limits)
    return plan


def default_models(recipe: Recipe) -> list[ModelPlanner]:
    """One planner for each model step of a recipe; latencies are measured before anything is trained."""
    measured_here = recipe.prune and recipe.prune.has_latency_goal and recipe.prune.latency_table is None
    return [*([add_latency] if measured_here else []), *(partial(_add_next, step=step) for step in steps_of(recipe))]


def _add_next(plan: Plan, cards: Sequence[Path], step: ModelStep) -> None:
    step.plan(plan, cards, plan.models[-1].name if plan.models else "")


def add_data(plan: Plan) -> None:
    """The step that reads the rows of every split."""
    recipe = plan.recipe
    task = hashed_settings(recipe.task)
    data = _without_unlabelled(task.pop("data"))
    del task["slices"]  # they have a step of their own: requesting others retrains no model
    del task["name"]  # only a label: recipes on the same rows share them and their teacher, whatever they are called
    if data["labelled"] is None:
        del data["labelled"]  # as before there was such a key
    if data["group"] is None:
        del data["group"]
    if (field := KINDS[recipe.task.kind].grouped_by) is not None:
        task["grouped_by"] = field
    if task["hard_negatives"]:
        task["negatives_leave_out"] = "the query itself"  # which could be one before there was such a key
    data["contents"] = contents_digest(recipe.task.data)
    checks = tuple(step.check_rows for step in steps_of(recipe) if step.check_rows)
    run = partial(prepare_data.data, task=recipe.task, checks=checks, every_class=bool(recipe.cascade))
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
        **_reading(recipe.task),
    }
    run = partial(prepare_data.unlabelled, task=recipe.task)
    plan.add(UNLABELLED, UNLABELLED, settings, ["data"], run)


def add_slices(plan: Plan) -> None:
    """The step that records the columns by which test scores are grouped, where the recipe names some."""
    recipe = plan.recipe
    if recipe.task.slices:
        run, contents = partial(prepare_data.slices, task=recipe.task), contents_digest(recipe.task.data)
        settings = {"contents": contents, "columns": list(recipe.task.slices), **_reading(recipe.task)}
        plan.add("slices", "slices", settings, ["data"], run, optional=True)


def _reading(task: Task) -> dict[str, Any]:
    """How files are read: steps that read them beside the rows may differ where the rows are the same."""
    hashed = hashed_settings(task)
    return {"data": _without_unlabelled(hashed["data"]), "aliases": hashed["aliases"]}


def _without_unlabelled(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the rows depend on besides their files, which are identified by contents and not by name."""
    rest = {key: value for key, value in data.items() if key not in PARTS}
    if isinstance(rest["header"], Mapping):
        rest["header"] = {part: header for part, header in rest["header"].items() if part != UNLABELLED} or True
    return rest


SHARED_LIBRARIES = ("tokenizers", "numpy")
"""Their versions are part of every measurement."""


def add_results(plan: Plan, cards: Sequence[Path], limits: bool) -> None:
    """Add the steps over all models and variants; with ``limits``, the machine's own limits are measured too."""
    recipe, missing = plan.recipe, dict(plan.missing_targets)
    served = list(dict.fromkeys(entry.step for entry in plan.variants))
    # A simple method is scored for comparison: a bag of words, where the task has one.
    plan.add("floor", "floor", {"seed": recipe.seed}, ["data"], partial(floor, seed=recipe.seed), optional=True)
    run = partial(measure, plan=plan, limits=limits)
    plan.add("measure", "measure", _measuring(plan, limits), ["data", *served], run, optional=True, tolerant=True)
    if recipe.probe:
        _add_probe(plan, cards)
    settings: dict[str, Any] = {
        "bootstrap": recipe.measure.bootstrap,
        "seed": recipe.seed,
        "rows": {entry.key: {"scores": entry.scores, "perturbs": entry.perturbs} for entry in plan.variants},
    }
    needs = [step.name for step in plan.steps if step.kind in ("data", "slices", "score", "perturb", "floor")]
    needs.append(plan.teacher.step)  # has the scores of what it was fine-tuned from
    plan.add("quality", "quality", settings, needs, partial(quality, plan=plan), tolerant=True)
    settings = {
        "rules": rules_of(recipe).model_dump(mode="json"),
        "targets": [[target.title, target.device] for target in recipe.targets],
        "missing": missing,
        "rows": [entry.key for entry in plan.variants],
    }
    plan.add("select", "select", settings, ["quality", "measure", *served], partial(select, plan=plan), tolerant=True)
    _add_packaged_formats(plan, settings, served)
    settings = {"recipe": recipe_without_paths(recipe)}
    needs = ["select", *served, *plan.packages.values()]
    plan.add("package", "package", settings, needs, partial(package, plan=plan), tolerant=True)
    needs = [step.name for step in plan.steps]
    settings |= {"missing": missing, "service": file_digest(Path(recipe.service)) if recipe.service else None}
    settings |= {"left_out": [*plan.left_out]} if plan.left_out else {}
    plan.add("report", "report", settings, needs, partial(report, plan=plan), tolerant=True)
    if recipe.publish:
        to = recipe.publish.to if "://" in recipe.publish.to else str(expanded_user(recipe.publish.to).absolute())
        settings = {"to": to, "name": recipe.publish.name or recipe.name}
        run, in_effect = partial(publish, settings=recipe.publish), partial(is_in_zoo, settings=recipe.publish)
        plan.add("publish", "publish", settings, ["package", "report"], run, optional=True, in_effect=in_effect)


def _add_probe(plan: Plan, cards: Sequence[Path]) -> None:
    """Add the step that probes the encoder and every model that is made of it."""
    settings = {
        "source": identity(plan.recipe.teacher.source, plan.recipe.teacher.revision, cards),
        "seed": plan.recipe.seed,
        "schema": 2,
    }
    needs = ["data", *(model.step for model in plan.evaluated if model.has_attention)]
    plan.add("probe", "probe", settings, needs, partial(probe, plan=plan, cards=cards), optional=True, tolerant=True)


def _add_packaged_formats(plan: Plan, selecting: Mapping[str, Any], served: Sequence[str]) -> None:
    """The steps that build a format for winners only, one a format; ``selecting`` are the settings of the selection."""
    recipe, scored = plan.recipe, plan.step("quality").needs
    for form in packaged_formats(recipe):
        settings: dict[str, Any] = {
            "format": form,
            "versions": _versions(form),
            "rules": selecting["rules"],
            "bootstrap": recipe.measure.bootstrap,
            "seed": recipe.seed,
        }
        run = partial(package_format, plan=plan, form=form)
        needs = list(dict.fromkeys(["select", "quality", *scored, *served, *(each.step for each in plan.evaluated)]))
        name = f"package-{form}"
        plan.packages[form] = plan.add(name, PACKAGE_FORMAT, settings, needs, run, optional=True, tolerant=True)


def _versions(form: str) -> dict[str, int]:
    """The versions of the builders of a format's variants, and of what they are made from, which may be built too."""
    found: dict[str, int] = {}
    needed: set[str | None] = set()
    for name, each in reversed(VARIANTS.items()):  # sources come first in the table
        if each.builder and (each.format == form or name in needed):
            found[name] = each.version
            needed.add(each.needs)
    return found


def _measuring(plan: Plan, limits: bool) -> dict[str, Any]:
    """The settings of the step that times every variant."""
    targets = plan.present_targets
    libraries = {name for entry in plan.variants for name in RUNTIMES[entry.variant.runtime].libraries}
    return {
        "targets": [target.model_dump(mode="json", exclude={"price"}) for target in targets],
        "measure": timing_settings(plan.recipe.measure),
        "variants": [entry.key for entry in plan.variants],
        "machine": describe().fingerprint,
        "accelerators": _accelerators() if any(target.device == "cuda" for target in targets) else {},
        "limits": limits,
        "seed": plan.recipe.seed,
        "versions": versions(sorted({*libraries, *SHARED_LIBRARIES})),
    }


def timing_settings(settings: Measure) -> dict[str, Any]:
    """The settings that change the result of the measuring step.

    Perturbed texts are scored in a step of their own, and a budget takes precedence over rounds and processes.
    """
    unused = {"robustness"} | ({"rounds", "processes"} if settings.budget else set())
    return settings.model_dump(mode="json", exclude=unused)


def _accelerators() -> dict[str, Any]:
    """The devices and what drives them: other drivers and libraries have other kernels."""
    return {"names": [gpu.name for gpu in cuda_devices()], "driver": driver_version(), "cuda": cuda_version()}
