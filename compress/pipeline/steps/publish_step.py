"""The publish step: the winners of all targets become one entry of a zoo."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compress.console import Console
from compress.errors import UsageError, nearest
from compress.model_folder.model_info import read_info
from compress.pipeline.run_lock import step_folder
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import read_record
from compress.pipeline.steps.package_step import WINNER_FOLDER, Origin, collect, everywhere_folder, winner_folder
from compress.publish.places import Place, open_place
from compress.publish.records import Record
from compress.publish.signatures import Signer, find_signer
from compress.publish.verify import VARIANTS_FOLDER
from compress.publish.zoo import find_published, publish_entry
from compress.recipe.schema import Publish
from compress.report.report_schema import Report, read_report
from compress.report.winner_summary import verdict_by_hand
from compress.select.ledger import Verdict

PUBLISH_FILE = "publish.json"


def publish(context: StepContext, settings: Publish) -> None:
    """Publish the packaged winners with the report."""
    report = read_report(context.inputs["report"])
    winners = _winners(context.inputs["package"], report)
    root = _root(context.inputs["package"], report, winners)
    to = _destination(settings, report)
    record = _publish(winners, report, to, context.console, root) if winners else None
    if record is None:
        context.console.warn("nothing is published: there is no winner")
    else:
        context.console.note(f"published: {to.address(record)}")
    context.write_json(PUBLISH_FILE, {"entry": record and to.address(record)})


def is_in_zoo(context: StepContext, settings: Publish) -> bool:
    """Whether the zoo still holds exactly what this step published."""
    report = read_report(context.inputs["report"])
    winners = _winners(context.inputs["package"], report)
    root = _root(context.inputs["package"], report, winners)
    to = _destination(settings, report)
    there = find_published(winners, report, to.place, to.name, root) if winners else None
    return there is not None and (there.signed or to.signer is None)


@dataclass(frozen=True)
class Destination:
    """Where something is published."""

    to: str
    """The address of a place."""
    name: str
    version: str | None = None
    """By default the next number."""
    signer: Signer | None = None

    @property
    def place(self) -> Place:
        """The place at that address."""
        return open_place(self.to)

    def address(self, record: Record) -> str:
        """Return what `pull` and `predict` take."""
        return f"{self.place.address}/{record.address}"


def publish_row(folder: Path, report: Report, key: str, to: Destination, console: Console, target: str) -> Record:
    """Publish one row of a finished run, whether it won or not.

    Args:
        folder: the run's.
        report: the run's.
        key: the row's: `trimmed/onnx-int8`.
        to: where.
        console: receives progress and warnings.
        target: where its figures are taken from.
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
        return _publish({target: packaged}, chosen, to, console, None)


def publish_winners(
    folder: Path, report: Report, to: Destination, console: Console, target: str | None = None
) -> Record:
    """Publish the winners of a finished run's folder, or that of one target, unless the newest version is just that."""
    winners = {} if target else _winners(folder / WINNER_FOLDER, report)
    if not winners:
        title = target or report.titles[0]
        winners = {title: winner_folder(folder / WINNER_FOLDER, report, title)}
    for verdict in report.verdicts:
        if verdict.target in winners:
            _warn_of_doubts(report, verdict, console)
    root = _root(folder / WINNER_FOLDER, report, winners)
    return _publish(winners, report, to, console, root)


def _warn_of_doubts(report: Report, verdict: Verdict, console: Console) -> None:
    """Warn where select left a winner undecided, and where test contradicts it."""
    if report.is_undecided(verdict):
        console.warn(f"the winner on {verdict.target} is undecided: {verdict.why}")
    for contradiction in verdict.contradictions:
        console.warn(f"the winner on {verdict.target} is in doubt: {contradiction}")


def _publish(
    winners: Mapping[str, Path], report: Report, to: Destination, console: Console, root: Path | None
) -> Record:
    record, is_new = publish_entry(winners, report, to.place, to.name, root, version=to.version, signer=to.signer)
    address = to.address(record)
    if not is_new:
        console.note("published before, and nothing has changed")
    elif root and (variant := read_info(root).variant):
        console.note(
            f"the root of {address} is {variant.name}, which runs everywhere; the winner is in {VARIANTS_FOLDER}/"
        )
    return record


def _winners(packaged: Path, report: Report) -> dict[str, Path]:
    return {one.target: winner_folder(packaged, report, one.target) for one in report.verdicts if one.winner}


def _root(packaged: Path, report: Report, winners: Mapping[str, Path]) -> Path | None:
    """Return the folder for an entry's root where the first target's winner does not run everywhere."""
    return everywhere_folder(packaged, report, next(iter(winners))) if winners else None


def _destination(settings: Publish, report: Report) -> Destination:
    return Destination(settings.to, settings.name or report.name, signer=find_signer())
