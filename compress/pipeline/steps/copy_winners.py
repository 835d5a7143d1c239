"""`winner/<target>/`: copies that deploy, and what is published of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from compress.console import Console
from compress.errors import UsageError, nearest
from compress.model_info import INFO_FILE, digests, read_info, write_info
from compress.pipeline.graph import Plan
from compress.pipeline.step_store import RECORD_FILE, StepStore, copy_aside
from compress.publish.local_zoo import REPORT_FOLDER, publish
from compress.recipe.schema import Publish
from compress.report.report_schema import REPORT_FILE, Report


def copy_winners(folder: Path, plan: Plan, store: StepStore, report: Report) -> None:
    """Put a copy of each target's winner into the run's folder, unless just that one is there; an earlier one goes."""
    won = {verdict.target for verdict in report.verdicts if verdict.winner}
    for stale in (folder / "winner").glob("*"):
        if stale.is_dir() and stale.name not in won:
            shutil.rmtree(stale)
    places = {made.key: store.folder(made.step, plan.step(made.step).fingerprint) for made in plan.competitors}
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
        copy_aside(places[row.key], place)
        write_info(place, told)


def _files(folder: Path) -> dict[str, str]:
    """The digests of what predicts: weights, config and tokenizer."""
    return {name: digest for name, digest in digests(folder).items() if name not in (INFO_FILE, RECORD_FILE)}


def winner_folder(folder: Path, report: Report, target: str | None = None) -> Path:
    """The folder of the winner at ``target``, by default at the first target that has one."""
    won = {verdict.target: verdict for verdict in report.verdicts if verdict.winner}
    if target is not None and target not in report.titles:
        raise UsageError(f"the run has no target '{target}'{nearest(target, report.titles)}")
    chosen = target or next(iter(won), None)
    if chosen is None or chosen not in won:
        raise UsageError(
            f"run '{report.name}' has no winner{f' at {target}' if target else ''}, so there is nothing to publish.",
            hint="compress report shows why; the gate is recipe.gate.max_drop",
        )
    place = folder / "winner" / chosen
    if not (place / INFO_FILE).is_file():
        raise UsageError(f"{place} is not there.", hint="compress run copies the winner there again")
    return place


def publish_winner(
    folder: Path, report: Report, settings: Publish, console: Console, target: str | None = None
) -> Path | None:
    """Publish the winner into a zoo, unless just this report stands there; says so when there is no winner."""
    if target is None and not any(verdict.winner for verdict in report.verdicts):
        console.warn("nothing is published: there is no winner")
        return None
    zoo, name = Path(settings.to).expanduser(), settings.name or report.name
    winner = winner_folder(folder, report, target)
    if _stands(zoo / name, folder, winner):
        console.note(f"published before: {zoo / name}")
        return zoo / name
    place = publish(winner, report, zoo, name, target)
    console.note(f"published: {place}")
    return place


def _stands(place: Path, folder: Path, winner: Path) -> bool:
    """Whether the zoo holds this report, and the winner of this target: another target's may be another model."""
    pairs = ((place / REPORT_FOLDER / REPORT_FILE, folder / REPORT_FILE), (place / INFO_FILE, winner / INFO_FILE))
    return all(published.is_file() and published.read_bytes() == ours.read_bytes() for published, ours in pairs)
