"""`winner/<target>/`: copies that deploy, and what is published of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from compress.atomic_write import atomic_copy_folder
from compress.console import Console
from compress.errors import UsageError, nearest
from compress.model_info import INFO_FILE, digests, read_info, write_info
from compress.pipeline.graph import Plan
from compress.pipeline.step_store import RECORD_FILE, StepStore
from compress.publish.local_zoo import is_published, publish_entry
from compress.recipe.schema import Publish
from compress.report.report_schema import Report


def copy_winners(folder: Path, plan: Plan, store: StepStore, report: Report) -> None:
    """Put a copy of each target's winner into the run's folder, unless just that one is there; an earlier one goes."""
    won = {verdict.target for verdict in report.verdicts if verdict.winner}
    for stale in (folder / "winner").glob("*"):
        if stale.is_dir() and stale.name not in won:
            shutil.rmtree(stale)
    places = {made.key: store.folder(made.step, plan.step(made.step).fingerprint) for made in plan.variants}
    for verdict in report.verdicts:
        place = folder / "winner" / verdict.target
        row = report.row(verdict.winner) if verdict.winner else None
        if row is None:
            continue
        # A variant that is only a way to run the model's own folder (torch bf16) must be told in the copy, which also
        # leaves the run behind, so the recipe goes along.
        info = read_info(places[row.key])
        told = info.model_copy(update={"variant": info.variant or row.variant, "recipe": report.recipe})
        if (place / INFO_FILE).is_file() and read_info(place) == told and _files(place) == _files(places[row.key]):
            continue
        atomic_copy_folder(places[row.key], place)
        write_info(place, told)


def _files(folder: Path) -> dict[str, str]:
    """The digests of what predicts: weights, config and tokenizer."""
    return {name: digest for name, digest in digests(folder).items() if name not in (INFO_FILE, RECORD_FILE)}


def winner_folder(folder: Path, report: Report, target: str) -> Path:
    """Return the folder of the winner on ``target``."""
    verdict = report.verdict(target)
    if target not in report.titles:
        raise UsageError(f"the run has no target '{target}'{nearest(target, report.titles)}")
    if verdict is None or verdict.winner is None:
        raise UsageError(
            f"run '{report.name}' has no winner on {target}, so there is nothing to publish.",
            hint="compress report shows why; the gate is recipe.gate.max_drop",
        )
    place = folder / "winner" / target
    if not (place / INFO_FILE).is_file():
        raise UsageError(f"{place} does not exist.", hint="compress run copies the winner there again")
    return place


def publish_winners(
    folder: Path, report: Report, settings: Publish, console: Console, target: str | None = None
) -> Path:
    """Publish the winners of all targets, or of one, as an entry of a zoo, unless it holds just that already.

    Returns:
        The entry's folder.
    """
    zoo, name = Path(settings.to).expanduser(), settings.name or report.name
    titles = [verdict.target for verdict in report.verdicts if verdict.winner] if target is None else [target]
    winners = {title: winner_folder(folder, report, title) for title in titles or report.titles[:1]}
    if is_published(winners, report, zoo, name):
        console.note(f"published before: {zoo / name}")
        return zoo / name
    entry = publish_entry(winners, report, zoo, name)
    console.note(f"published: {entry}")
    return entry
