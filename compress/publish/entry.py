"""What one zoo entry holds: the winners of a run, each variant once, and the report that compares them.

Its root runs everywhere: where the first target's winner does not, the best variant that does is there instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compress.errors import ModelError, UsageError
from compress.formats import EXPORTS
from compress.model_folder.model_info import FolderInfo, read_info
from compress.publish.verify import VARIANTS_FOLDER
from compress.report.report_schema import LedgerRow, Report
from compress.runtimes import EVERYWHERE, why_not_in_all
from compress.select.ledger import TargetResult, Verdict


@dataclass(frozen=True)
class PublishedVariant:
    """One variant of an entry."""

    path: str
    """Its folder within the entry; empty for the first, whose files are in the entry's root."""
    source: Path
    """The winner's folder that it is copied from."""
    info: FolderInfo
    row: LedgerRow
    results: Mapping[str, TargetResult]
    """Its scores and timings by target."""
    verdicts: tuple[Verdict, ...]
    """Of the targets on which it won, or on the first target that of the best variant that runs everywhere."""
    won: tuple[Verdict, ...]
    """Of the targets on which it won."""

    @property
    def why_not_everywhere(self) -> str | None:
        """Why it does not run where the root of an entry should; None where it does."""
        variant = self.info.variant or self.row.variant
        stated = variant.libraries.get("onnxruntime")
        return why_not_in_all(EVERYWHERE, variant.format, variant.operators, stated)

    @property
    def result(self) -> TargetResult:
        """Its scores and timings on the first target that it won."""
        return self.results[self.verdicts[0].target]

    @property
    def exported_file(self) -> str | None:
        """Where its folder in the entry has the model's file; None for a model folder, which is not exported."""
        form = EXPORTS.get(self.info.variant.format) if self.info.variant else None
        return path_in_entry(form.files[0]) if form else None


@dataclass(frozen=True)
class Entry:
    """A zoo entry before it is written."""

    name: str
    report: Report
    variants: tuple[PublishedVariant, ...]

    @property
    def main(self) -> PublishedVariant:
        """The variant in the entry's root."""
        return self.variants[0]


def make_entry(winners: Mapping[str, Path], report: Report, name: str, root: Path | None = None) -> Entry:
    """Match every winner's folder with its row of the report.

    Args:
        winners: the folder of each target's winner, by target title. The first fills the entry's root; a row that
            wins on several targets is listed once, with the folder of the first of them.
        report: the run's report.
        name: the entry's name in its zoo.
        root: the folder of the best variant that runs everywhere, where the first target's winner does not.
    """
    verdicts: dict[str, list[Verdict]] = {}
    for title in winners:
        verdict = report.verdict(title)
        if verdict is None or verdict.winner is None:
            raise UsageError(f"report '{report.name}' names no winner on target '{title}'.")
        verdicts.setdefault(verdict.winner, []).append(verdict)
    first = report.verdict(next(iter(winners)))
    everywhere = first.everywhere if first and root else None
    folders = {key: winners[won[0].target] for key, won in verdicts.items()}
    if everywhere and everywhere.winner and root:
        verdicts = {everywhere.winner: verdicts.get(everywhere.winner, []), **verdicts}
        folders[everywhere.winner] = root
    variants: list[PublishedVariant] = []
    for key, won in verdicts.items():
        folder, shown = folders[key], [everywhere] if everywhere and not variants else won
        row = next(row for row in report.rows if row.key == key)
        info = read_info(folder)
        if info.variant is not None and info.variant.name != row.variant.name:
            raise ModelError(f"{folder} holds {info.variant.name}; the report's winner on {shown[0].target} is {key}.")
        results = {result.target: result for result in report.results if result.key == key}
        path = f"{VARIANTS_FOLDER}/{key.replace('/', '-')}" if variants else ""
        variants.append(PublishedVariant(path, folder, info, row, results, tuple(shown), tuple(won)))
    return Entry(name, report, tuple(variants))


def path_in_entry(name: str) -> str:
    """Return where a variant's file goes: ONNX models into `onnx/`, as transformers.js and optimum expect."""
    return f"onnx/{name}" if "/" not in name and ".onnx" in name else name
