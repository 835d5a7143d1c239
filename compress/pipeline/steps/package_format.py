"""The step that builds one format for the winners only, and scores and gates each file in its own runtime."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.errors import CompressError, DeviceUnavailable, MissingExtra, StepIncomplete, unexpected
from compress.formats import FORMATS
from compress.make_variant import VariantMaker
from compress.measure.resources.footprint import footprint
from compress.model_folder.model_info import read_info
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import share_folder
from compress.pipeline.steps.build_variant import PARITY_BATCH, SAMPLE_ROWS, build_context, sample_train
from compress.pipeline.steps.scoring_steps import QualityScorer, reference_key, score, scoring_batch
from compress.pipeline.steps.select_step import rules_of
from compress.recipe.measure_schema import Target
from compress.select.gate import gate
from compress.select.ledger import LEDGER_FILE, Ledger, PackagedFormat, TargetResult, read_ledger, write_ledger
from compress.variants import Variant, variant_in

if TYPE_CHECKING:
    from compress.export import BuildContext

PACKAGE_FORMAT = "package-format"
"""The kind of these steps."""
UNQUANTIZED = "torch-fp32"
"""What an INT8 file is compared with: its own model in PyTorch, which every run scores."""
SOURCE, SCORED = "source", "scored"
"""Names of inputs that the step makes for itself."""
SCRATCH = ".scratch"
"""In the step's folder, because the folders of targets share the files that are built there."""


def package_format(context: StepContext, plan: Plan, form: str) -> None:
    """Build the format ``form`` for the winner of each target, into a folder of the target's name.

    A winner that has this format already needs no other file of it. Of the variants of the format, INT8 is for winners
    in INT8; a format that is converted from another one is made of the winner's own file where it can be. What fails
    for one target stops no other, and is all that the next run builds; so is what a killed run did not come to.

    Raises:
        StepIncomplete: it failed for some targets.
        CompressError: it failed for every target.
    """
    entries = {entry.key: entry for entry in plan.variants}
    winners = {target: entries[key] for target, key in read_ledger(context.inputs["select"]).winners.items()}
    targets = {target.title: target for target in plan.recipe.targets}
    scratch = context.work / SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)  # of a killed run
    scratch.mkdir()
    packager = FormatPackager(context, plan, form, scratch)
    wanted = [title for title, winner in winners.items() if winner.variant.format != form]
    packaged = packaged_before(context.work)
    for title in wanted:
        if title not in packaged:
            packaged[title] = packager.package(targets[title], winners[title])
            write_packaged(context.work, packaged.values())
    write_packaged(context.work, [packaged[title] for title in wanted])
    shutil.rmtree(scratch)
    if failed := [each for each in packaged.values() if each.status == "failed"]:
        if len(failed) < len(packaged):
            raise StepIncomplete(reasons(failed), hint="the next run tries it again; the other targets have it")
        (context.work / LEDGER_FILE).unlink()
        one = {str(each.reason) for each in failed}
        raise CompressError(one.pop() if len(one) == 1 else reasons(failed))


def packaged_before(work: Path) -> dict[str, PackagedFormat]:
    """Return by target what an attempt with the same inputs left, killed or incomplete; without what failed."""
    formats = read_ledger(work).packaged if (work / LEDGER_FILE).is_file() else ()
    return {each.target: each for each in formats if each.status != "failed"}


def write_packaged(work: Path, packaged: Iterable[PackagedFormat]) -> None:
    """Write the ledger in one go, and as a new file: an incomplete result of before shares the old one."""
    write_ledger(work / SCRATCH, Ledger(packaged=tuple(packaged)))
    (work / SCRATCH / LEDGER_FILE).replace(work / LEDGER_FILE)


def reasons(failed: Iterable[PackagedFormat]) -> str:
    """Return why a format failed, with the targets of each reason."""
    targets: dict[tuple[str, str | None], list[str]] = {}
    for each in failed:
        targets.setdefault((each.format, each.reason), []).append(each.target)
    return "; ".join(f"{form} for {', '.join(names)}: {reason}" for (form, reason), names in targets.items())


@dataclass
class FormatPackager:
    """Builds one format for one winner after the other; for a winner on several targets once."""

    context: StepContext
    plan: Plan
    form: str
    scratch: Path
    _makers: dict[str, VariantMaker] = field(default_factory=dict)

    def package(self, target: Target, winner: ModelVariant) -> PackagedFormat:
        """Build and score the format for the winner on one target."""
        named: dict[str, Any] = {"target": target.title, "winner": winner.key, "format": self.form}
        folder = self.context.work / target.title
        shutil.rmtree(folder, ignore_errors=True)  # of a killed run
        if not FORMATS[winner.variant.format].is_single:
            reason = f"{self.form} holds one model, and {winner.key} is of two"
            return PackagedFormat(**named, status="not built", reason=reason)
        try:
            packaged = PackagedFormat(**named, **self._package(target, winner, folder))
        except Exception as error:  # noqa: BLE001  # whatever a library raises, the other targets get theirs
            shutil.rmtree(folder, ignore_errors=True)
            failure = unexpected(error)
            return PackagedFormat(**named, status="failed", reason=failure.full_message)
        if packaged.variant and packaged.gate and not packaged.is_delivered:
            why = "; ".join(packaged.gate.reasons)
            self.context.console.warn(f"{packaged.variant.name} for {target.title} is not delivered: it {why}.")
        return packaged

    def _package(self, target: Target, winner: ModelVariant, folder: Path) -> dict[str, Any]:
        """Build and score the format, and return what is known of it."""
        variant = variant_in(self.form, winner.variant.precision)
        share_folder(self._maker(winner).make(variant), folder)
        facts: dict[str, Any] = {"variant": read_info(folder).variant, "footprint": footprint(folder)}
        try:
            scores = self._score(variant, winner, target, folder)
        except (DeviceUnavailable, MissingExtra) as error:
            return facts | {"status": "not scored", "reason": error.message}
        return facts | {"select": scores.select, "test": scores.test, "gate": self._gate(variant, scores, target)}

    def _maker(self, winner: ModelVariant) -> VariantMaker:
        """Return what makes variants of the winner's model, of its own file or another of the run where it can."""
        if winner.key not in self._makers:
            model = self.context.inputs[self.plan.model(winner.model).step]
            present = partial(self._present, winner)
            self._makers[winner.key] = VariantMaker(model, self._scratch_folder(), self._build_context, present)
        return self._makers[winner.key]

    def _build_context(self, variant: Variant, source: Path, work: Path) -> BuildContext:
        recipe = self.plan.recipe
        context = replace(self.context, inputs={SOURCE: source}, work=work)
        sample = sample_train(self._prepared, source, SAMPLE_ROWS, recipe.seed)
        settings = {key: getattr(recipe.quantize, key) for key in variant.reads} if recipe.quantize else {}
        build = build_context(context, SOURCE, variant, self._prepared, sample, [PARITY_BATCH], recipe.seed, settings)
        return replace(build, runs_elsewhere=True)

    def _present(self, winner: ModelVariant, needed: Variant) -> Path | None:
        """Return the winner's own folder, or another of its model, that serves as ``needed``; None where none does."""
        inputs = self.context.inputs
        if (needed.format, needed.precision) == (winner.variant.format, winner.variant.precision):
            return inputs[winner.step]
        for entry in self.plan.variants:
            if entry.model == winner.model and entry.variant.name == needed.name and entry.step in inputs:
                return inputs[entry.step]
        return None

    def _score(self, variant: Variant, winner: ModelVariant, target: Target, folder: Path) -> TargetResult:
        """Return the scores of the built file in its own runtime, compared with the teacher's and its own model's."""
        device = target.device if target.device in variant.devices else "cpu"
        work = self._scratch_folder()
        context = replace(self.context, inputs={**self.context.inputs, SOURCE: folder, SCORED: work}, work=work)
        score(context, SOURCE, variant, device, scoring_batch(variant, target))
        compared = variant.model_copy(update={"compared_with": UNQUANTIZED})
        entry = ModelVariant(winner.model, compared, SOURCE, scores={target.title: SCORED})
        return QualityScorer(self.plan, context).result(entry, target)

    def _gate(self, variant: Variant, scores: TargetResult, target: Target) -> Any:
        """Judge it as every variant is judged."""
        reference = read_ledger(self.context.inputs["quality"]).result(reference_key(self.plan), target.title)
        classes: Mapping[str, Any] = reference.select.per_class if reference and reference.select else {}
        quantized = variant.quantizer is not None
        return gate(rules_of(self.plan.recipe), scores.select, classes, quantized=quantized)

    def _scratch_folder(self) -> Path:
        folder = self.scratch / str(len(list(self.scratch.iterdir())))
        folder.mkdir()
        return folder

    @cached_property
    def _prepared(self) -> PreparedData:
        return load_prepared(self.context.inputs["data"])
