"""Before the first step: can the recipe run, and is everything here that its steps need? All is told at once."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compress.cards import PackageCheckpoint, find_teacher, locate
from compress.data.loading.data_digest import entries
from compress.data.splits.prepare_splits import load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.errors import CompressError, UsageError, format_bytes
from compress.model_info import TaskInfo
from compress.model_sources import source_kind
from compress.pipeline.graph import Plan, Step
from compress.pipeline.preflight.model_availability import absent_models
from compress.pipeline.step_store import StepStore
from compress.recipe.training_schema import Distill
from compress.tasks import task_info
from compress.variants import VARIANTS

LIBRARIES = {
    "data": {"datasets": "train"},
    "unlabelled": {"datasets": "train"},
    "floor": {"sklearn": "train"},
    "finetune": {"torch": "train", "transformers": "train", "accelerate": "train"},
    "distill": {"torch": "train", "transformers": "train", "accelerate": "train"},
    "prune": {"torch": "train", "transformers": "train", "torch_pruning": "train"},
    "export": {"torch": "train", "onnx": "train", "onnxscript": "train"},
    "quantize": {"onnx": "train", "onnxruntime": "train"},
    "report": {"jinja2": "report"},
}
"""What each kind of step imports, and the extra that brings it."""
RUNTIME_LIBRARIES = {"openvino": {"openvino": "openvino"}}
"""What steps about a variant import for its runtime, where their kind does not bring it."""

ROOM_PER_MODEL = 8
"""Times the teacher's weights that a model may take on disk: itself, its variants and its training's checkpoint."""

LEARNING_STEPS = {"distill", "prune"}
MODEL_STEPS = {"finetune", *LEARNING_STEPS}


@dataclass(frozen=True)
class Findings:
    """What was found before the first step."""

    faults: list[str]
    """Mistakes of the recipe, which can run nowhere."""
    lacking: list[str]
    """What this machine does not have: libraries, models, room."""
    doubts: list[str]
    """What is no fault and should be known before hours go into it."""

    def refuse(self, *, here: bool = True) -> None:
        """Raise one error that names everything in the way of a run, ``here`` or on any machine."""
        found = [*(self.lacking if here else ()), *self.faults]
        if found:
            raise UsageError("\n  ".join(["the run cannot start:", *found]))


def check(plan: Plan, store: StepStore, forced: set[str], cards: Sequence[Path] = ()) -> Findings:
    """All that can be known without running anything; steps that stand ask for nothing."""
    waiting = [step for step in plan.steps if step.name in forced or not store.record(step.name, step.fingerprint)]
    due = {step.kind for step in waiting}
    libraries = [*_missing_libraries(plan, waiting)]
    places = [*_place_faults(plan, store), *(_disk_faults(plan, store, cards) if due else ())]
    absent = [*absent_models(plan.recipe, due, cards)]
    faults, doubts = _of_models(plan, store, due, cards) if due & MODEL_STEPS and not libraries else ([], [])
    return Findings(faults, [*libraries, *places, *absent], [*(_unread(plan) if due else ()), *doubts])


def _of_models(plan: Plan, store: StepStore, due: set[str], cards: Sequence[Path]) -> tuple[list[str], list[str]]:
    """The faults and doubts that the models' configs show."""
    from compress.pipeline.preflight.model_compatibility import compatibility_errors, compatibility_warnings

    faults = list(compatibility_errors(plan.recipe, cards, _task_of(plan, store)))
    return faults, list(compatibility_warnings(plan.recipe, cards)) if due & LEARNING_STEPS and not faults else []


def _unread(plan: Plan) -> Iterator[str]:
    """Sections that are written, and that no step reads: what they are for may have been left out on purpose."""
    distill = plan.recipe.distill
    if distill and distill != Distill() and not plan.recipe.student:
        yield "distill is not read: there is no student that would be distilled"
    if entries(plan.recipe.task.data, UNLABELLED) and all(step.kind != UNLABELLED for step in plan.steps):
        yield "task.data.unlabelled is not read: no student is distilled, and no pruned model recovers"


def _task_of(plan: Plan, store: StepStore) -> TaskInfo | None:
    """The task with its labels, where the recipe tells them or the data are read already."""
    step = plan.step("data")
    if store.record(step.name, step.fingerprint):
        return load_prepared(store.folder(step.name, step.fingerprint)).info.task_info
    labels = plan.recipe.task.labels
    return None if labels is None else task_info(plan.recipe.task, labels)


def _missing_libraries(plan: Plan, waiting: Sequence[Step]) -> Iterator[str]:
    due = {step.kind for step in waiting}
    needed = {library: extra for kind, needs in LIBRARIES.items() if kind in due for library, extra in needs.items()}
    for name in {step.settings["variant"] for step in waiting if "variant" in step.settings}:
        needed |= RUNTIME_LIBRARIES.get(VARIANTS[name].runtime, {})
    if plan.recipe.track and due & MODEL_STEPS:
        needed[plan.recipe.track] = "track"
    missing = {library: extra for library, extra in needed.items() if importlib.util.find_spec(library) is None}
    for extra in sorted(set(missing.values())):
        names = ", ".join(library for library, its in missing.items() if its == extra)
        yield f"not installed: {names}; pip install 'compress-encoders[{extra}]'"


def _place_faults(plan: Plan, store: StepStore) -> Iterator[str]:
    places = {"--runs": store.root}
    if plan.recipe.publish:
        places["publish"] = Path(plan.recipe.publish.to).expanduser()
    for name, place in places.items():
        existing = next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())
        if not existing.is_dir():
            yield f"{name}: {existing} is a file, expected a folder"
        elif not os.access(existing, os.W_OK):
            yield f"{name}: {existing} cannot be written to"


def _disk_faults(plan: Plan, store: StepStore, cards: Sequence[Path]) -> Iterator[str]:
    weights = _teacher_bytes(plan, cards)
    models = 1 + bool(plan.recipe.student) + bool(plan.recipe.prune)
    existing = next(path for path in (store.root.absolute(), *store.root.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    wanted = weights * ROOM_PER_MODEL * models
    if free < wanted:
        yield f"disk: {format_bytes(free)} free at {existing}, the run may need {format_bytes(wanted)}"


def _teacher_bytes(plan: Plan, cards: Sequence[Path]) -> int:
    """The size of the teacher's weights where they lie on this machine; 0 where only the hub knows."""
    source = plan.recipe.teacher.source
    try:
        place = source_kind(source, "teachers", cards)
        folder = Path(source).expanduser()
        if place == "card":
            checkpoint = find_teacher(source, cards).checkpoint
            if not isinstance(checkpoint, PackageCheckpoint):
                return 0
            folder = locate(checkpoint)
        elif place == "hub":
            return 0
    except CompressError:
        return 0
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
