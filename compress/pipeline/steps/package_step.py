"""The package step: the folders that deploy, `<target>/`, of winners only; they are copied to `winner/<target>/`.

Where a winner does not run everywhere, the best variant that does is collected too, for the root of a published entry.
"""

import json
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from compress.errors import UsageError, nearest
from compress.model_folder.model_info import INFO_FILE, FolderInfo, Parent, VariantInfo, read_info, write_info
from compress.model_folder.tokenizer_files import write_tokenizer_files
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import StepRecord, share_folder
from compress.pipeline.steps.scoring_steps import scoring_batch
from compress.pipeline.strip_paths import recipe_without_paths
from compress.recipe.measure_schema import Target
from compress.recipe.schema import Recipe
from compress.report.report_schema import Report
from compress.select.ledger import read_ledger
from compress.storage.atomic_write import atomic_copy_folder
from compress.storage.file_digests import digests
from compress.storage.file_names import ANSWERS_FILE, RECORD_FILE

PACKAGE_FILE = "package.json"
WINNER_FOLDER = "winner"
EVERYWHERE_FOLDER = "_everywhere"
"""Beside the folders of targets, whose names begin with a letter or digit."""


def package(context: StepContext, plan: Plan) -> None:
    """Collect each target's winner, with its lineage and the recipe, because it leaves the run behind."""
    entries = {entry.key: entry for entry in plan.variants}
    ledger = read_ledger(context.inputs["select"])
    targets = {target.title: target for target in plan.recipe.targets}
    for title, key in ledger.winners.items():
        _collect(context, plan, entries[key], targets[title], context.work / title)
        _add_formats(context, plan, targets[title])
    for title, key in ledger.everywhere.items():
        _collect(context, plan, entries[key], targets[title], context.work / EVERYWHERE_FOLDER / title)
    context.write_json(PACKAGE_FILE, {"winners": ledger.winners, "everywhere": ledger.everywhere})


def copy_winners(packaged: Path, folder: Path) -> None:
    """Make ``folder/winner`` hold the packaged winners; those that are there already are not copied again."""
    collected = json.loads((packaged / PACKAGE_FILE).read_bytes())
    _copy_targets(collected["winners"], packaged, folder / WINNER_FOLDER)
    everywhere = folder / WINNER_FOLDER / EVERYWHERE_FOLDER
    _copy_targets(collected.get("everywhere", ()), packaged / EVERYWHERE_FOLDER, everywhere)
    for empty in (everywhere, folder / WINNER_FOLDER):
        if empty.is_dir() and not any(empty.iterdir()):
            empty.rmdir()


def _copy_targets(targets: Collection[str], source: Path, folder: Path) -> None:
    """Make ``folder`` hold the folders of these targets below ``source``, and no others."""
    for stale in folder.glob("*"):
        if stale.is_dir() and stale.name not in (*targets, EVERYWHERE_FOLDER):
            shutil.rmtree(stale)
    for target in targets:
        if not (folder / target).is_dir() or digests(source / target) != digests(folder / target):
            atomic_copy_folder(source / target, folder / target)


def everywhere_folder(winners: Path, report: Report, target: str) -> Path | None:
    """Return the folder of the best variant that runs everywhere; None where that is the winner or there is none."""
    verdict, folder = report.verdict(target), winners / EVERYWHERE_FOLDER / target
    return folder if verdict and verdict.everywhere and (folder / INFO_FILE).is_file() else None


def with_scored_batch(variant: VariantInfo, batch: int) -> VariantInfo:
    """Return a variant with the batch that it was scored at; unchanged where its answers do not depend on that."""
    return variant.model_copy(update={"scored_batch": batch}) if variant.batch_sensitive else variant


def winner_folder(winners: Path, report: Report, target: str) -> Path:
    """Return the folder of the winner on ``target`` below ``winners``."""
    verdict = report.verdict(target)
    if target not in report.titles:
        raise UsageError(f"the run has no target '{target}'{nearest(target, report.titles)}")
    if verdict is None or verdict.winner is None:
        raise UsageError(
            f"run '{report.name}' has no winner on {target}, so there is nothing to publish"
            f"{f': {verdict.why}' if verdict else ''}.",
            hint="compress report shows every row, and compress publish … --row ROW publishes one that did not win",
        )
    folder = winners / target
    if not (folder / INFO_FILE).is_file():
        raise UsageError(f"{folder} does not exist.", hint="compress run copies the winner there again")
    return folder


def _add_formats(context: StepContext, plan: Plan, target: Target) -> None:
    """Put each format that was built for the winner on ``target`` beside it, unless it lost too much."""
    for form, step in plan.packages.items():
        formats = read_ledger(context.inputs[step]).packaged if step in context.inputs else ()
        built = next((each for each in formats if each.target == target.title and each.is_delivered), None)
        if built is not None:
            folder, made = context.work / target.title / form, context.records[step]
            share_folder(context.inputs[step] / target.title, folder)
            info = read_info(folder)
            parents = (Parent(step=step, fingerprint=made.fingerprint, digest=made.digest),)
            variant = with_scored_batch(info.variant, target.batch) if info.variant and built.select else info.variant
            write_info(folder, _with_origin(info, _origin(plan.recipe), parents=parents, variant=variant))


def _collect(context: StepContext, plan: Plan, entry: ModelVariant, target: Target, folder: Path) -> None:
    source, record = context.inputs[entry.step], context.records[entry.step]
    batch = scoring_batch(entry.variant, target)
    collect(source, record, entry.variant.info, batch, _origin(plan.recipe), folder)


class Origin(NamedTuple):
    """What steps do not know, since several recipes share them."""

    task: str
    """What the recipe calls the task."""
    recipe: Mapping[str, Any]
    """Without paths."""


def _origin(recipe: Recipe) -> Origin:
    return Origin(recipe.task_title, recipe_without_paths(recipe))


def collect(source: Path, record: StepRecord, variant: VariantInfo, batch: int, origin: Origin, folder: Path) -> None:
    """Copy the result of a step to a folder that deploys, with its lineage and the recipe.

    Args:
        source: the step's folder.
        record: of the step.
        variant: what the folder is used as, where it does not name one.
        batch: rows a batch when it was scored.
        origin: of the run.
        folder: to write.
    """
    share_folder(source, folder)
    for name in (RECORD_FILE, ANSWERS_FILE):
        (folder / name).unlink(missing_ok=True)
    info = read_info(folder)
    parents = tuple(
        Parent(step=name, fingerprint=made.fingerprint, digest=made.digest) for name, made in record.inputs.items()
    )
    # A variant that is only a way to run the model's own folder (torch-bf16) is not named there.
    changes = {
        "variant": with_scored_batch(info.variant or variant, batch),
        "parents": parents,
        "made_by": record.made_by or info.made_by,
    }
    write_info(folder, _with_origin(info, origin, **changes))
    write_tokenizer_files(folder, info.task)  # of a model that an earlier version trained


def _with_origin(info: FolderInfo, origin: Origin, **changes: Any) -> FolderInfo:
    task = info.task and info.task.model_copy(update={"name": origin.task})
    return info.model_copy(update={"task": task, "recipe": origin.recipe, **changes})
