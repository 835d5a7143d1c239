"""The publish step: the winners of all targets become one entry of a zoo."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from compress.console import Console
from compress.errors import UsageError, nearest
from compress.model_folder.model_info import read_info
from compress.pipeline.run_lock import step_folder
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import read_record
from compress.pipeline.steps.package_step import WINNER_FOLDER, Origin, collect, everywhere_folder, winner_folder
from compress.publish.entry import VARIANTS_FOLDER
from compress.publish.local_zoo import is_published, publish_entry
from compress.recipe.schema import Publish
from compress.report.report_schema import Report, read_report
from compress.report.winner_summary import verdict_by_hand

PUBLISH_FILE = "publish.json"


def publish(context: StepContext, settings: Publish) -> None:
    """Publish the packaged winners with the report."""
    report = read_report(context.inputs["report"])
    winners = _winners(context.inputs["package"], report)
    root = _root(context.inputs["package"], report, winners)
    entry = _publish(winners, report, *_address(settings, report), context.console, root) if winners else None
    if entry is None:
        context.console.warn("nothing is published: there is no winner")
    context.write_json(PUBLISH_FILE, {"entry": entry and str(entry)})


def is_in_zoo(context: StepContext, settings: Publish) -> bool:
    """Whether the zoo still holds exactly what this step published."""
    report = read_report(context.inputs["report"])
    winners = _winners(context.inputs["package"], report)
    root = _root(context.inputs["package"], report, winners)
    return bool(winners) and is_published(winners, report, *_address(settings, report), root)


def publish_row(
    folder: Path, report: Report, key: str, zoo: Path, name: str, console: Console, target: str, *, replace: bool
) -> Path:
    """Publish one row of a finished run, whether it won or not; returns the entry's folder.

    Args:
        folder: the run's.
        report: the run's.
        key: the row's: `trimmed/onnx-int8`.
        zoo: the folder of published models.
        name: the entry's name.
        console: receives progress and warnings.
        target: where its figures are taken from.
        replace: an entry with another result.
    """
    if target not in report.titles:
        raise UsageError(f"the run has no target '{target}'{nearest(target, report.titles)}")
    row, known = report.row(key), [each.key for each, _ in report.rows_at(target) if each.steps]
    if row is None or key not in known:
        raise UsageError(f"run '{report.name}' has no row '{key}' on {target}{nearest(key, known)}")
    if (result := report.result(key, target)) and (gate := result.gate) and gate.state != "passed":
        console.warn(f"{key} could not win on {target}: {gate.state}, {gate.why}")
    source = step_folder(folder, row.steps[-1])
    chosen = report.model_copy(update={"verdicts": (verdict_by_hand(report, key, target),)})
    with tempfile.TemporaryDirectory(prefix="compress-publish-") as scratch:
        packaged = Path(scratch) / target
        origin, batch = Origin(report.task.name, report.recipe), report.target(target).batch
        collect(source, read_record(source), row.variant, batch, origin, packaged)
        return _publish({target: packaged}, chosen, zoo, name, console, None, replace=replace)


def publish_winners(
    folder: Path,
    report: Report,
    zoo: Path,
    name: str,
    console: Console,
    target: str | None = None,
    *,
    replace: bool = False,
) -> Path:
    """Publish the winners of a finished run's folder, or that of one target, unless the zoo holds just that already.

    ``replace``: an entry with another result. Returns the entry's folder.
    """
    winners = {} if target else _winners(folder / WINNER_FOLDER, report)
    if not winners:
        title = target or report.titles[0]
        winners = {title: winner_folder(folder / WINNER_FOLDER, report, title)}
    root = _root(folder / WINNER_FOLDER, report, winners)
    return _publish(winners, report, zoo, name, console, root, replace=replace)


def _publish(
    winners: Mapping[str, Path],
    report: Report,
    zoo: Path,
    name: str,
    console: Console,
    root: Path | None,
    *,
    replace: bool = False,
) -> Path:
    if is_published(winners, report, zoo, name, root):
        console.note(f"published before: {zoo / name}")
        return zoo / name
    entry = publish_entry(winners, report, zoo, name, root, replace=replace)
    console.note(f"published: {entry}")
    if root and (variant := read_info(root).variant):
        console.note(f"its root is {variant.name}, which runs everywhere; the winner is in {entry / VARIANTS_FOLDER}")
    return entry


def _winners(packaged: Path, report: Report) -> dict[str, Path]:
    return {one.target: winner_folder(packaged, report, one.target) for one in report.verdicts if one.winner}


def _root(packaged: Path, report: Report, winners: Mapping[str, Path]) -> Path | None:
    """Return the folder for an entry's root where the first target's winner does not run everywhere."""
    return everywhere_folder(packaged, report, next(iter(winners))) if winners else None


def _address(settings: Publish, report: Report) -> tuple[Path, str]:
    return Path(settings.to).expanduser(), settings.name or report.name
