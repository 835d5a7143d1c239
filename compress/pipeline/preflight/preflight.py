"""Checks made before the first step: whether the recipe can run, and whether this machine has what it needs.

Among them: which names of models lead to no model, and which models are not on this machine.
"""

import importlib.util
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from compress.data.splits.prepare_splits import DataInfo, load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.environment import describe, hub_state, usable_cores
from compress.errors import CompressError, DataError, Problem, UsageError, format_bytes
from compress.model_folder.model_info import TaskInfo
from compress.model_sources import cached_checkpoint, folder_of, local_folder, model_files, source_kind
from compress.pipeline.graph import Plan, Step
from compress.pipeline.step_store import StepStore
from compress.pipeline.steps.package_format import PACKAGE_FORMAT
from compress.publish.places import check_writable, open_place
from compress.publish.pull import checked_model
from compress.recipe.distill_schema import Distill
from compress.recipe.schema import Recipe
from compress.select.cascade_threshold import check_classes
from compress.steps import KINDS, STEPS, distillations
from compress.steps.distillations import models_of_distillation
from compress.steps.model_step import TRAINING, NamedModel
from compress.storage.atomic_write import why_unwritable
from compress.storage.file_names import expanded_user
from compress.tasks import task_info
from compress.variants import VARIANTS, missing_extras, missing_programs, variant_in

LIBRARIES_OF_STEPS: Mapping[str, Mapping[str, str]] = {
    **{name: kind.libraries for name, kind in KINDS.items()},
    "data": {"datasets": "train"},
    "unlabelled": {"datasets": "train"},
    "floor": {"sklearn": "train"},
    "workload": TRAINING,
    "latency": {**TRAINING, "onnx": "train", "onnxscript": "train"},
    "report": {"jinja2": "report"},
}
"""Libraries that each kind of step imports, and the extra that contains them; variants state their own."""

DISK_PER_MODEL = 8
"""Disk space of a model as a multiple of the teacher's weights: itself, its variants, and checkpoints."""

BUILD_STEPS = {"export", "quantize"}


@dataclass(frozen=True)
class Findings:
    """The results of all checks."""

    errors: list[str]
    """Mistakes of the recipe: it can run on no machine."""
    missing: list[str]
    """What this machine lacks: libraries, models, disk space."""
    warnings: list[str]
    """Valid settings that are probably unintended."""

    def refuse(self, *, here: bool = True) -> None:
        """Raise one error that names everything that prevents a run, ``here`` or on any machine."""
        reasons = [*(self.missing if here else ()), *self.errors]
        if reasons:
            raise UsageError("\n  ".join(["the run cannot start:", *reasons]))


def check(plan: Plan, store: StepStore, forced: set[str], cards: Sequence[Path] = ()) -> Findings:
    """Check everything that can be known without running anything; cached steps need nothing."""
    waiting = [step for step in plan.steps if step.name in forced or not store.record(step.name, step.fingerprint)]
    due = {step.name for step in waiting}
    models = [model for model in plan.models if model.step in due]
    libraries = list(_missing_libraries(plan, waiting))
    programs = list(_missing_programs(waiting))
    sections = {model.section for model in models}
    missing = [*libraries, *programs, *_unwritable_folders(plan, store), *absent_models(plan.recipe, sections, cards)]
    data = _prepared_data(plan, store)
    errors = list(_unfit_rows(data, sections, plan.recipe))
    warnings = [*plan.left_out.values()]
    if due:
        warnings += _general_warnings(plan)
        missing += _missing_disk(plan, store, cards, len(models))
    if models and not libraries:
        from compress.pipeline.preflight.model_compatibility import compatibility_errors, compatibility_warnings

        errors += compatibility_errors(plan.recipe, cards, _task_of(plan, data))
        if not errors and any(model.parent for model in models):
            warnings += compatibility_warnings(plan.recipe, cards)
    return Findings(errors, missing, warnings)


def _general_warnings(plan: Plan) -> Iterator[str]:
    """Sections that no step reads, and more threads than there are cores."""
    distill = plan.recipe.distill
    if distill and distill != Distill() and not plan.recipe.students:
        yield "distill has no effect: the recipe has no student to distil"
    if plan.recipe.task.data.has_unlabelled and all(step.kind != UNLABELLED for step in plan.steps):
        yield (
            "unlabelled texts (task.data) have no effect: no student is distilled, no pruned model recovers, and no"
            " vocabulary is pruned"
        )
    cores = usable_cores()
    for target in plan.recipe.targets:
        if target.device == "cpu" and target.threads > cores:
            yield f"target {target.title}: {target.threads} threads on {cores} usable CPU cores; times will be slower"


def _prepared_data(plan: Plan, store: StepStore) -> DataInfo | None:
    """Return what the data are known to be, where they are prepared already."""
    step = plan.step("data")
    known = store.record(step.name, step.fingerprint)
    return load_prepared(store.folder(step.name, step.fingerprint)).info if known else None


def _task_of(plan: Plan, data: DataInfo | None) -> TaskInfo | None:
    """Return the task with its labels, where the recipe gives them or the data are prepared already."""
    labels = plan.recipe.task.labels
    return data.task_info if data else None if labels is None else task_info(plan.recipe.task, labels)


def _unfit_rows(data: DataInfo | None, sections: Collection[str], recipe: Recipe) -> Iterator[str]:
    """Yield why models cannot be made of rows that are prepared already; the data step refuses others."""
    if data is None:
        return
    counted = [check for each in sections if (check := STEPS[each].check_rows)]
    checks: list[Callable[[], object]] = [partial(check, data.counts["train"]) for check in counted]
    if recipe.cascade:
        checks.append(partial(check_classes, data))
    for refuse in checks:
        try:
            refuse()
        except (DataError, UsageError) as error:
            yield error.full_message


def _missing_libraries(plan: Plan, waiting: Sequence[Step]) -> Iterator[str]:
    needed: dict[str, str] = {}
    for step in waiting:
        needed |= LIBRARIES_OF_STEPS.get(step.kind, {})
        if "variant" in step.settings:
            variant = VARIANTS[step.settings["variant"]]
            needed |= {**variant.run_modules, **(variant.build_modules if step.kind in BUILD_STEPS else {})}
        if step.kind == PACKAGE_FORMAT:
            form = step.settings["format"]
            needed |= {**missing_extras(form), **variant_in(form, "int8").build_modules}
    if plan.recipe.track and any(step.trains for step in waiting):
        needed[plan.recipe.track] = "track"
    absent = {library: extra for library, extra in needed.items() if importlib.util.find_spec(library) is None}
    for extra in sorted(set(absent.values())):
        names = ", ".join(library for library, its_extra in absent.items() if its_extra == extra)
        yield f"not installed: {names}; pip install 'compress-encoders[{extra}]'"


def _missing_programs(waiting: Sequence[Step]) -> Iterator[str]:
    packaged = [step.settings["format"] for step in waiting if step.kind == PACKAGE_FORMAT]
    built = [VARIANTS[step.settings["variant"]].format for step in waiting if step.kind in BUILD_STEPS]
    for form in dict.fromkeys([*packaged, *built]):
        if absent := missing_programs(form):
            yield f"not installed: {', '.join(absent)}, which building the format {form} runs"


def _unwritable_folders(plan: Plan, store: StepStore) -> Iterator[str]:
    folders = {"--runs": store.root}
    to = plan.recipe.publish.to if plan.recipe.publish else ""
    if "://" in to:
        try:
            check_writable(open_place(to))
        except CompressError as error:
            yield f"publish: {error.full_message}"
    elif to:
        folders["publish"] = expanded_user(to)
    for name, folder in folders.items():
        if reason := why_unwritable(folder):
            yield f"{name}: {reason}"


def _missing_disk(plan: Plan, store: StepStore, cards: Sequence[Path], models: int) -> Iterator[str]:
    """Say where there is too little room for so many models that are to be made."""
    teacher = plan.recipe.teacher
    folder = local_folder(teacher.source, teacher.revision, cards)
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors")) if folder else 0
    free, needed = describe(store.root).disk_free, weights * DISK_PER_MODEL * models
    if free < needed:
        yield f"disk: {format_bytes(free)} free at {store.root}, the run may need {format_bytes(needed)}"


HUB_TIMEOUT = 0.5
"""Seconds to wait for the hub before it counts as unreachable."""


def named_models(recipe: Recipe) -> Iterator[tuple[str, NamedModel]]:
    """Yield every model that a card, a folder or a hub id names, with each model step that needs it."""
    learnt = dict(distillations(recipe))
    for section, step in STEPS.items():
        models = [*step.named_models(recipe)]
        if step.in_effect(recipe) and (path := step.training or step.follows) in learnt:
            models += models_of_distillation(path, learnt[path])
        yield from ((section, named) for named in models)


def source_problems(recipe: Recipe, cards: Sequence[Path] = ()) -> Iterator[Problem]:
    """Yield names that lead to no model on any machine."""
    for named in {named.path: named for _, named in named_models(recipe)}.values():
        try:
            local = source_kind(named.source, named.kind, cards) == "folder"
            if local:
                model_files(expanded_user(named.source))
                if named.revision is not None:
                    reason = f"{named.source} is a folder, and only the hub has revisions"
                    yield Problem((*named.path, "revision"), reason)
        except UsageError as error:
            yield Problem(named.path, error.full_message)
    for path, settings in distillations(recipe):
        folder = settings.cross_encoder
        if folder is not None and not expanded_user(folder).is_dir():
            yield Problem((*path, "cross_encoder"), f"there is no folder {folder}.")


def absent_models(recipe: Recipe, sections: Collection[str], cards: Sequence[Path] = ()) -> Iterator[str]:
    """Yield models that the steps of these ``sections`` need and that neither this machine nor its hub has.

    A published model that none of the trusted keys signed counts as one of these. The hub is probed at most once, and
    only if a model is missing.
    """
    state = cache(lambda: hub_state(HUB_TIMEOUT))

    def cached_or_address(name: str, revision: str) -> Path | str:
        return cached_checkpoint(name, revision) or f"{name}@{revision}"

    needed = {named.path: named for section, named in named_models(recipe) if section in sections}
    for named in needed.values():
        key = ".".join(map(str, named.path))
        try:
            location = folder_of(named.source, named.revision, cards, cached_or_address)
            if isinstance(location, Path):
                checked_model(str(location))
        except CompressError as error:
            yield f"{key}: {error.full_message}"
            continue
        if isinstance(location, str) and state() != "reachable":
            name = location.partition("@")[0]
            folder = f"there is no folder {name}, and " if named.source.startswith(name) else ""
            yield (
                f"{key}: {folder}{location} is not on this machine; model hub: {state()} "
                f"(`hf download {name} --local-dir DIR` where it is reachable; then name DIR instead of {named.source})"
            )
