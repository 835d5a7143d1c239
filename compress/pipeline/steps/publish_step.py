"""The publish step: the winners of all targets become one entry of a zoo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compress.console import Console
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.package_step import WINNER_FOLDER, everywhere_folder, winner_folder
from compress.publish.local_zoo import is_published, publish_entry
from compress.recipe.schema import Publish
from compress.report.report_schema import Report, read_report

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


def publish_winners(
    folder: Path, report: Report, zoo: Path, name: str, console: Console, target: str | None = None
) -> Path:
    """Publish the winners of a finished run's folder, or that of one target, unless the zoo holds just that already.

    Returns:
        The entry's folder.
    """
    winners = {} if target else _winners(folder / WINNER_FOLDER, report)
    if not winners:
        title = target or report.titles[0]
        winners = {title: winner_folder(folder / WINNER_FOLDER, report, title)}
    root = _root(folder / WINNER_FOLDER, report, winners)
    return _publish(winners, report, zoo, name, console, root)


def _publish(
    winners: Mapping[str, Path], report: Report, zoo: Path, name: str, console: Console, root: Path | None
) -> Path:
    if is_published(winners, report, zoo, name, root):
        console.note(f"published before: {zoo / name}")
        return zoo / name
    entry = publish_entry(winners, report, zoo, name, root)
    console.note(f"published: {entry}")
    return entry


def _winners(packaged: Path, report: Report) -> dict[str, Path]:
    return {one.target: winner_folder(packaged, report, one.target) for one in report.verdicts if one.winner}


def _root(packaged: Path, report: Report, winners: Mapping[str, Path]) -> Path | None:
    """Return the folder for an entry's root where the first target's winner does not run everywhere."""
    return everywhere_folder(packaged, report, next(iter(winners))) if winners else None


def _address(settings: Publish, report: Report) -> tuple[Path, str]:
    return Path(settings.to).expanduser(), settings.name or report.name
