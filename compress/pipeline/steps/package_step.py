"""The package step: the folders that deploy, `<target>/`, of winners only; they are copied to `winner/<target>/`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from compress.errors import UsageError, nearest
from compress.model_info import INFO_FILE, FolderInfo, Parent, read_info, write_info
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import RECORD_FILE, share_folder
from compress.pipeline.steps.scoring_steps import ANSWERS_FILE
from compress.pipeline.strip_paths import recipe_without_paths
from compress.recipe.schema import Recipe
from compress.report.packaged_format import read_packaged
from compress.report.report_schema import Report
from compress.select.selection import read_selection
from compress.storage.atomic_write import atomic_copy_folder
from compress.storage.file_digests import digests
from compress.tokenizer_files import write_tokenizer_files

PACKAGE_FILE = "package.json"
WINNER_FOLDER = "winner"


def package(context: StepContext, plan: Plan) -> None:
    """Collect each target's winner, with its lineage and the recipe, because it leaves the run behind."""
    entries = {entry.key: entry for entry in plan.variants}
    winners = read_selection(context.inputs["select"]).winners
    for target, key in winners.items():
        _collect(context, plan, entries[key], context.work / target)
        _add_formats(context, plan, target)
    context.write_json(PACKAGE_FILE, {"winners": winners})


def copy_winners(packaged: Path, folder: Path) -> None:
    """Make ``folder/winner`` hold the packaged winners; those that are there already are not copied again."""
    winners = json.loads((packaged / PACKAGE_FILE).read_bytes())["winners"]
    for stale in (folder / WINNER_FOLDER).glob("*"):
        if stale.is_dir() and stale.name not in winners:
            shutil.rmtree(stale)
    for target in winners:
        source, copy = packaged / target, folder / WINNER_FOLDER / target
        if not copy.is_dir() or digests(source) != digests(copy):
            atomic_copy_folder(source, copy)


def winner_folder(winners: Path, report: Report, target: str) -> Path:
    """Return the folder of the winner on ``target`` below ``winners``."""
    verdict = report.verdict(target)
    if target not in report.titles:
        raise UsageError(f"the run has no target '{target}'{nearest(target, report.titles)}")
    if verdict is None or verdict.winner is None:
        raise UsageError(
            f"run '{report.name}' has no winner on {target}, so there is nothing to publish.",
            hint="compress report shows why; the gate is recipe.gate.max_drop",
        )
    folder = winners / target
    if not (folder / INFO_FILE).is_file():
        raise UsageError(f"{folder} does not exist.", hint="compress run copies the winner there again")
    return folder


def _add_formats(context: StepContext, plan: Plan, target: str) -> None:
    """Put each format that was built for the winner on ``target`` beside it, unless it lost too much."""
    for form, step in plan.packages.items():
        built = read_packaged(context.inputs[step]).formats if step in context.inputs else ()
        if any(each.target == target and each.is_delivered for each in built):
            folder, made = context.work / target / form, context.records[step]
            share_folder(context.inputs[step] / target, folder)
            parents = (Parent(step=step, fingerprint=made.fingerprint, digest=made.digest),)
            write_info(folder, _with_origin(read_info(folder), plan.recipe, parents=parents))


def _collect(context: StepContext, plan: Plan, entry: ModelVariant, folder: Path) -> None:
    share_folder(context.inputs[entry.step], folder)
    for name in (RECORD_FILE, ANSWERS_FILE):
        (folder / name).unlink(missing_ok=True)
    record, info = context.records[entry.step], read_info(folder)
    parents = tuple(
        Parent(step=name, fingerprint=made.fingerprint, digest=made.digest) for name, made in record.inputs.items()
    )
    # A variant that is only a way to run the model's own folder (torch-bf16) is not named there.
    changes = {
        "variant": info.variant or entry.variant.info,
        "parents": parents,
        "made_by": record.made_by or info.made_by,
    }
    write_info(folder, _with_origin(info, plan.recipe, **changes))
    write_tokenizer_files(folder, info.task)  # of a model that an earlier version trained


def _with_origin(info: FolderInfo, recipe: Recipe, **changes: Any) -> FolderInfo:
    """Add the recipe, and what it calls the task: steps know neither, since several recipes share them."""
    task = info.task and info.task.model_copy(update={"name": recipe.task_title})
    return info.model_copy(update={"task": task, "recipe": recipe_without_paths(recipe), **changes})
