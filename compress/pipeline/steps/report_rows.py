"""The rows of a report: one a variant, with what every target measured of it."""

from __future__ import annotations

from dataclasses import dataclass

from compress.measure.resources.footprint import Footprint, footprint
from compress.measure.roofline.roofline import find_limits, shares_of_limits
from compress.model_info import FolderInfo, read_info
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.measure_step import Measured
from compress.pipeline.steps.quality_step import QualityResults
from compress.pipeline.steps.select_step import failure_of, latency_at, targets_of
from compress.recipe.measure_schema import Target
from compress.report.report_schema import LedgerRow, TargetResult
from compress.select.quantization_loss import Fallback


@dataclass
class RowBuilder:
    """Reads what the steps of a run left about each variant."""

    plan: Plan
    context: StepContext
    quality: QualityResults
    measured: Measured

    def row(self, entry: ModelVariant) -> LedgerRow:
        """Return the row of a variant; of one that was not built, why."""
        folder = self.context.inputs.get(entry.step)
        row = LedgerRow(
            model=entry.model,
            step=self.plan.model(entry.model).section,
            variant=entry.variant.info,
            fallback=self._fallback(entry),
        )
        if folder is None:
            cause = self._cause(entry.step)
            reason = failure_of(self.context, cause)
            status = "not measured" if cause in self.context.skipped else "failed"
            reason = reason if cause == entry.step else f"{cause}: {reason}"
            return row.model_copy(update={"status": status, "reason": reason})
        info, size = read_info(folder), footprint(folder)
        targets, steps, records = targets_of(self.plan, entry.variant), self._steps_to(entry.step), self.context.records
        return row.model_copy(
            update={
                "variant": info.variant or entry.variant.info,
                "shape": info.shape.text if info.shape else None,
                "footprint": size,
                "cost_seconds": round(sum(records[name].seconds for name in steps), 3),
                "steps": steps,
                "targets": {target.title: self._at(entry, target, info, size) for target in targets},
            }
        )

    def _fallback(self, entry: ModelVariant) -> Fallback | None:
        record = self.context.records.get(entry.fallback or "")
        return Fallback.model_validate(record.measured) if record and record.measured else None

    def _cause(self, step: str) -> str:
        """The step because of which ``step`` has no result: itself, or one that it was made from."""
        absent = [need for need in self.plan.step(step).needs if need in self.context.failures]
        return self._cause(absent[0]) if absent else step

    def _steps_to(self, step: str) -> tuple[str, ...]:
        """The names of ``step`` and of all steps it depends on, of those that have a result."""
        needed = {step}
        for each in reversed(self.plan.steps):
            needed |= {*each.needs} if each.name in needed else set()
        return tuple(name for name in self.context.records if name in needed)

    def _at(self, entry: ModelVariant, target: Target, info: FolderInfo, size: Footprint) -> TargetResult:
        latency = latency_at(self.context, self.plan, self.measured, entry, target)
        scores = self.quality.at(entry.key, target.title)
        limits = find_limits(self.measured.limits, target.device, target.threads)
        shares = None
        if latency.timed and limits and info.shape:
            weights = size.bytes_weights
            shares = shares_of_limits(latency, info.shape, limits, entry.variant.precision, weights, target.batch)
        return TargetResult(
            select=scores.select,
            test=scores.test,
            latency=latency,
            shares=shares,
            serving=self.measured.serving.get(f"{target.device} t{target.threads} {entry.key}", ()),
        )
