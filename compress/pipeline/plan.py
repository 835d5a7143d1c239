"""From a resolved recipe to the list of steps, each with its fingerprint: nothing runs, nothing heavy is loaded.

Model steps make model folders (finetune → distill → prune). Every model then gives one step for each variant that must
be built, and one score for each way a variant is used; measuring and the report come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from compress.data.loading.data_digest import PARTS, contents_digest, entries
from compress.data.loading.row_sources import check_columns
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.environment import cuda_devices, cuda_version, describe, driver_version, versions
from compress.model_sources import folder_identity, identity
from compress.pipeline.fingerprint import effective
from compress.pipeline.graph import Competitor, Plan
from compress.pipeline.steps import run_steps, scoring_steps, training_steps
from compress.pipeline.strip_paths import portable
from compress.recipe.measure_schema import Measure, Target
from compress.recipe.schema import Recipe
from compress.recipe.training_schema import Distill, FurtherTeacher
from compress.variants import Variant, variants_for

SCORING_BATCH = 32
"""Rows scored together where a variant's answer does not depend on what shares its batch."""

RUNTIME_LIBRARIES: Mapping[str, Sequence[str]] = {
    "torch": ("torch", "transformers"),
    "torch-compiled": ("torch", "transformers", "triton"),
    "torch-graph": ("torch", "transformers"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "onnxruntime-tensorrt": ("onnxruntime-gpu", "tensorrt"),
    "openvino": ("openvino",),
}
"""Their versions are part of a measurement in that runtime."""
SHARED_LIBRARIES = ("tokenizers", "numpy")
"""Their versions are part of every measurement."""


def make_plan(recipe: Recipe, cards: Sequence[Path] = (), *, limits: bool = True) -> Plan:
    """Lay out the steps of a resolved recipe.

    Args:
        recipe: with every name resolved.
        cards: folders of cards beside the shipped ones.
        limits: measure the machine's own limits too; a rehearsal does without.
    """
    plan = Plan(recipe)
    check_columns(recipe.task)
    _add_data(plan)
    _add_unlabelled(plan)
    _add_slices(plan)
    models = _add_models(plan, cards)
    _note_missing_targets(plan)
    for model, step in models.items():
        _add_variants(plan, model, step)
    _add_floor(plan)
    _add_measure(plan, limits)
    _add_report(plan)
    return plan


def _add_data(plan: Plan) -> None:
    recipe = plan.recipe
    task = effective(recipe.task)
    data = _without_unlabelled(task.pop("data"))
    del task["slices"]  # a step of their own notes them: asking for others makes no model again
    del task["name"]  # only what it is called: recipes about the same rows share them and their teacher
    data["contents"] = contents_digest(recipe.task.data)
    settings = {"task": task, "data": data, "seed": recipe.seed}
    plan.add("data", "data", settings, [], partial(run_steps.data, task=recipe.task, seed=recipe.seed))


def _without_unlabelled(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the roles' rows depend on besides their files, which are known by their contents and not by their names."""
    kept = {key: value for key, value in data.items() if key not in PARTS}
    if isinstance(kept["header"], Mapping):
        kept["header"] = {part: header for part, header in kept["header"].items() if part != UNLABELLED} or True
    return kept


def _add_unlabelled(plan: Plan) -> None:
    """Texts without an answer have a step of their own, for distillation alone: adding some changes no teacher."""
    recipe, data = plan.recipe, plan.recipe.task.data
    if not (entries(data, UNLABELLED) and any(recipe.distillations())):
        return
    settings = {
        "contents": contents_digest(data, (UNLABELLED,)),
        "columns": list(recipe.task.text),
        "header": data.header.get(UNLABELLED, True) if isinstance(data.header, Mapping) else data.header,
    }
    run = partial(run_steps.unlabelled, task=recipe.task, seed=recipe.seed)
    plan.add(UNLABELLED, UNLABELLED, settings, ["data"], run)


def _add_slices(plan: Plan) -> None:
    recipe = plan.recipe
    if recipe.task.slices:
        run = partial(run_steps.slices, task=recipe.task, seed=recipe.seed)
        plan.add("slices", "slices", {"columns": list(recipe.task.slices)}, ["data"], run, optional=True)


def _add_models(plan: Plan, cards: Sequence[Path]) -> dict[str, str]:
    """The model steps; returns model → step."""
    recipe = plan.recipe
    seed = recipe.seed
    source = identity(recipe.teacher.source, recipe.teacher.revision, cards)
    settings: dict[str, Any] = {
        "teacher": source,
        "finetune": recipe.finetune and effective(recipe.finetune),
        "seed": seed,
    }
    run = partial(
        training_steps.finetune,
        teacher=recipe.teacher,
        settings=recipe.finetune,
        seed=seed,
        cards=tuple(cards),
        beside=_further_teachers(recipe),
    )
    unlabelled = [step.name for step in plan.steps if step.kind == UNLABELLED]
    models = {"teacher": plan.add("finetune", "finetune", settings, ["data"], run, trains=True)}
    if recipe.student:
        student = effective(recipe.student)
        if recipe.student.source:
            student["source"] = identity(recipe.student.source, recipe.student.revision, cards)
        settings = {"student": student, "distill": recipe.distill and _distilled(recipe.distill), "seed": seed}
        run = partial(training_steps.distill, student=recipe.student, settings=recipe.distill, seed=seed)
        needs = ["data", "finetune", *(unlabelled if recipe.distill else ())]
        models["student"] = plan.add("distill", "distill", settings, needs, run, trains=True)
    if recipe.prune:
        parent = models.get("student", models["teacher"])
        needs = list(dict.fromkeys(["data", "finetune", parent, *(unlabelled if recipe.prune.recover else ())]))
        run = partial(training_steps.prune, parent=parent, settings=recipe.prune, seed=seed)
        pruned = effective(recipe.prune)
        if recipe.prune.recover:
            pruned["recover"] = _distilled(recipe.prune.recover)
        settings = {"prune": pruned, "parent": parent, "seed": seed}
        models["pruned"] = plan.add("prune", "prune", settings, needs, run, trains=True)
    return models


def _further_teachers(recipe: Recipe) -> tuple[FurtherTeacher, ...]:
    """Those that will teach beside the recipe's own."""
    return tuple(teacher for _, settings in recipe.distillations() for teacher in settings.teachers)


def _distilled(settings: Distill) -> dict[str, Any]:
    """The settings that count; of other models their contents, wherever they stand."""
    told = effective(settings)
    for teacher, further in zip(told["teachers"], settings.teachers, strict=True):
        teacher["source"] = identity(further.source, further.revision)
    if settings.augment is not None:
        told["augment"]["model"] = identity(settings.augment.model, None)
    if settings.cross_encoder is not None:
        told["cross_encoder"] = folder_identity(settings.cross_encoder)
    return told


def _note_missing_targets(plan: Plan) -> None:
    if _uses_cuda(plan.recipe.targets) and not cuda_devices():
        absent = [target.title for target in plan.recipe.targets if target.device == "cuda"]
        plan.missing_targets = dict.fromkeys(absent, "this machine has no CUDA device")


def _uses_cuda(targets: Sequence[Target]) -> bool:
    return any(target.device == "cuda" for target in targets)


def _add_variants(plan: Plan, model: str, step: str) -> None:
    """The steps that build, and then score, every variant of one model."""
    recipe = plan.recipe
    present = [target for target in recipe.targets if target.title not in plan.missing_targets]
    devices = list(dict.fromkeys(target.device for target in recipe.targets))
    places: dict[str, str] = {}
    quantizer = recipe.quantize.method if recipe.quantize else None
    for variant in variants_for(recipe.export, quantizer, devices, also=recipe.variants):
        places[variant.name] = _add_build(plan, model, step, variant, places)
        place, able = places[variant.name], [target for target in present if variant.runs_on(target.device)]
        scores = {target.title: _add_answers(plan, "score", model, variant, place, target) for target in able}
        changed = able if recipe.measure.robustness else []
        perturbs = {target.title: _add_answers(plan, "perturb", model, variant, place, target) for target in changed}
        plan.competitors.append(Competitor(model, variant, place, scores, perturbs))


def _add_build(plan: Plan, model: str, step: str, variant: Variant, places: Mapping[str, str]) -> str:
    """The step that builds ``variant``, or the model's own step where nothing has to be built."""
    if variant.build is None:
        return step
    kind = "quantize" if variant.method else "export"
    parent = places[variant.needs] if variant.needs else step
    run = partial(run_steps.build, parent=parent, variant=variant)
    return plan.add(
        f"{kind}-{model}-{variant.name}", kind, {"variant": variant.name}, ["data", parent], run, optional=True
    )


def _add_answers(
    plan: Plan, kind: Literal["score", "perturb"], model: str, variant: Variant, place: str, target: Target
) -> str:
    """The step that answers with a variant as ``target`` uses it; targets that use it alike share one.

    Changed texts have one of their own: asking for other changes scores nothing else again.
    """
    batch = target.batch if variant.batch_sensitive else SCORING_BATCH
    name = f"{kind}-{model}-{variant.name}-{target.device}-b{batch}"
    if all(step.name != name for step in plan.steps):
        asked: dict[str, Any] = {"device": target.device, "batch": batch}
        if kind == "perturb":
            asked |= {"names": list(plan.recipe.measure.robustness), "seed": plan.recipe.seed}
        run = partial(
            scoring_steps.score if kind == "score" else scoring_steps.perturb, parent=place, variant=variant, **asked
        )
        plan.add(name, kind, {"variant": variant.name, **asked}, ["data", place], run, optional=True)
    return name


def _add_floor(plan: Plan) -> None:
    seed = plan.recipe.seed
    plan.add("floor", "floor", {"seed": seed}, ["data"], partial(scoring_steps.floor, seed=seed), optional=True)


def _add_measure(plan: Plan, limits: bool) -> None:
    recipe = plan.recipe
    present = [target for target in recipe.targets if target.title not in plan.missing_targets]
    runtimes = sorted({competitor.variant.runtime for competitor in plan.competitors})
    libraries = {name for runtime in runtimes for name in RUNTIME_LIBRARIES[runtime]}
    settings: dict[str, Any] = {
        "targets": [target.model_dump(mode="json") for target in present],
        "measure": looked_at(recipe.measure),
        "competitors": [competitor.key for competitor in plan.competitors],
        "machine": describe().fingerprint,
        "accelerators": _accelerators() if _uses_cuda(present) else {},
        "limits": limits,
        "seed": recipe.seed,
        "versions": versions(sorted({*libraries, *SHARED_LIBRARIES})),
    }
    needs = list(dict.fromkeys(["data", *(competitor.step for competitor in plan.competitors)]))
    run = partial(
        run_steps.measure,
        targets=present,
        settings=recipe.measure,
        competitors=tuple(plan.competitors),
        seed=recipe.seed,
        limits=limits,
    )
    plan.add("measure", "measure", settings, needs, run, optional=True)


def _accelerators() -> dict[str, Any]:
    """The devices and what drives them: other drivers and libraries bring other kernels."""
    return {"names": [gpu.name for gpu in cuda_devices()], "driver": driver_version(), "cuda": cuda_version()}


def looked_at(settings: Measure) -> dict[str, Any]:
    """The settings that change what the measuring step finds.

    Changed texts are a step of their own, and a budget is kept whatever the rounds and processes are.
    """
    unused = {"robustness"} | ({"rounds", "processes"} if settings.budget else set())
    return settings.model_dump(mode="json", exclude=unused)


def _add_report(plan: Plan) -> None:
    recipe = plan.recipe
    settings = {
        "recipe": portable(recipe),
        "missing": dict(plan.missing_targets),
    }
    needs = [step.name for step in plan.steps]
    plan.add("report", "report", settings, needs, partial(run_steps.report, plan=plan))
