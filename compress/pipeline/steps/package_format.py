"""The step that builds one format for the winners only, and scores and gates each file in its own runtime."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.errors import DeviceUnavailable, MissingExtra
from compress.formats import RUNTIMES
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.scoring_steps import score, scoring_batch
from compress.recipe.measure_schema import Target
from compress.report.packaged_format import PACKAGED_FILE, Packaged, PackagedFormat
from compress.select.gate import gate
from compress.select.selection import read_selection
from compress.variants import VARIANTS, Variant, variant_in

if TYPE_CHECKING:
    from compress.data.splits.prepare_splits import PreparedData
    from compress.pipeline.steps.quality_step import RowQuality

PACKAGE_FORMAT = "package-format"
"""The kind of these steps."""
UNQUANTIZED = "torch-fp32"
"""What an INT8 file is compared with: its own model in PyTorch, which every run scores."""
SOURCE, SCORED = "source", "scored"
"""Names of inputs that the step makes for itself."""


def package_format(context: StepContext, plan: Plan, form: str) -> None:
    """Build the format ``form`` for the winner of each target, into a folder of the target's name.

    A winner that has this format already needs no other file of it. Of the variants of the format, INT8 is for winners
    in INT8; a format that is converted from another one is made of the winner's own file where it can be.
    """
    entries = {entry.key: entry for entry in plan.variants}
    winners = {target: entries[key] for target, key in read_selection(context.inputs["select"]).winners.items()}
    targets = {target.title: target for target in plan.recipe.targets}
    packager = FormatPackager(context, plan, form)
    packaged = [
        packager.package(targets[title], winner) for title, winner in winners.items() if winner.variant.format != form
    ]
    content = Packaged(formats=tuple(packaged))
    (context.work / PACKAGED_FILE).write_text(content.model_dump_json(indent=1) + "\n", encoding="utf-8")


@dataclass
class FormatPackager:
    """Builds one format for one winner after the other."""

    context: StepContext
    plan: Plan
    form: str

    def package(self, target: Target, winner: ModelVariant) -> PackagedFormat:
        """Build and score the format for the winner on one target."""
        from compress.measure.resources.footprint import footprint
        from compress.model_info import read_info

        variant, folder = variant_in(self.form, winner.variant.precision), self.context.work / target.title
        with tempfile.TemporaryDirectory(prefix="compress-package-") as scratch:
            shutil.rmtree(folder, ignore_errors=True)  # of a killed run
            folder.mkdir()
            self._build(variant, winner, folder, Path(scratch))
            facts: dict[str, Any] = {"variant": read_info(folder).variant, "footprint": footprint(folder)}
            try:
                scores = self._score(variant, winner, target, folder, Path(scratch) / SCORED)
            except (DeviceUnavailable, MissingExtra) as error:
                facts |= {"status": "not scored", "reason": error.message}
            else:
                facts |= {"select": scores.select, "test": scores.test, "gate": self._gate(variant, scores, target)}
        packaged = PackagedFormat(target=target.title, winner=winner.key, format=self.form, **facts)
        if packaged.gate and not packaged.is_delivered:
            why = "; ".join(packaged.gate.reasons)
            self.context.console.warn(f"{variant.name} for {target.title} is not delivered: it {why}.")
        return packaged

    def _build(self, variant: Variant, winner: ModelVariant, folder: Path, scratch: Path) -> None:
        """Build ``variant`` of the winner's model into ``folder``."""
        from compress.pipeline.steps.build_variant import PARITY_BATCH, SAMPLE_ROWS, build_context, sample_train

        recipe = self.plan.recipe
        source = self._source(variant, winner, scratch)
        context = replace(self.context, inputs={SOURCE: source}, work=folder)
        sizes = [PARITY_BATCH]
        sample = sample_train(self._prepared, source, SAMPLE_ROWS, recipe.seed)
        settings = {key: getattr(recipe.quantize, key) for key in variant.reads} if recipe.quantize else {}
        variant.make(build_context(context, SOURCE, variant, self._prepared, sample, sizes, recipe.seed, settings))

    def _source(self, variant: Variant, winner: ModelVariant, scratch: Path) -> Path:
        """Return the folder that ``variant`` is made from: the winner's own, another of its model, or one made here."""
        inputs = self.context.inputs
        if variant.needs is None:
            return inputs[self.plan.model(winner.model).step]
        needed = VARIANTS[variant.needs]
        if (needed.format, needed.precision) == (winner.variant.format, winner.variant.precision):
            return inputs[winner.step]
        for entry in self.plan.variants:
            if entry.model == winner.model and entry.variant.name == needed.name and entry.step in inputs:
                return inputs[entry.step]
        made = scratch / needed.name
        made.mkdir()
        self._build(needed, winner, made, scratch)
        return made

    def _score(self, variant: Variant, winner: ModelVariant, target: Target, folder: Path, work: Path) -> RowQuality:
        """Return the scores of the built file in its own runtime, compared with the teacher's and its own model's."""
        from compress.pipeline.steps.quality_step import QualityScorer, RowQuality

        if not variant.devices:
            raise DeviceUnavailable(f"it runs in {RUNTIMES[variant.runtime].needs}, and not here.")
        device = target.device if target.device in variant.devices else "cpu"
        work.mkdir()
        context = replace(self.context, inputs={**self.context.inputs, SOURCE: folder, SCORED: work}, work=work)
        score(context, SOURCE, variant, device, scoring_batch(variant, target))
        compared = variant.model_copy(update={"compared_with": UNQUANTIZED})
        entry = ModelVariant(winner.model, compared, SOURCE, scores={target.title: SCORED})
        scorer = QualityScorer(self.plan, context)
        return RowQuality(select=scorer.quality(entry, target, "select"), test=scorer.quality(entry, target, "test"))

    def _gate(self, variant: Variant, scores: RowQuality, target: Target) -> Any:
        """Judge it as every variant is judged."""
        from compress.pipeline.steps.quality_step import read_quality, reference_key
        from compress.pipeline.steps.select_step import rules_of

        reference = read_quality(self.context.inputs["quality"]).at(reference_key(self.plan), target.title).select
        classes: Mapping[str, Any] = reference.per_class if reference else {}
        quantized = variant.quantizer is not None
        return gate(rules_of(self.plan.recipe), scores.select, classes, quantized=quantized)

    @cached_property
    def _prepared(self) -> PreparedData:
        from compress.data.splits.prepare_splits import load_prepared

        return load_prepared(self.context.inputs["data"])
