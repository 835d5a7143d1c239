"""The select step: gate and winner of every target."""

from __future__ import annotations

from collections.abc import Sequence

from compress.measure import Latency
from compress.measure.resources.footprint import footprint
from compress.model_info import read_info
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.measure_step import Measured, read_measured
from compress.pipeline.steps.quality_step import read_quality, reference_key
from compress.pipeline.strip_paths import strip_paths
from compress.recipe.measure_schema import Target
from compress.recipe.schema import Recipe
from compress.runtime_releases import EVERYWHERE, why_not_in_all
from compress.select.selection import SELECT_FILE, Candidate, Limits, Rules, Selection, TargetSelection
from compress.select.winner import select_winner
from compress.variants import Variant


def select(context: StepContext, plan: Plan) -> None:
    """Choose the winner on each target from select scores, timings and sizes."""
    measured, results, rules = read_timings(context), read_quality(context.inputs["quality"]), rules_of(plan.recipe)

    def selected(target: Target) -> TargetSelection:
        candidates = [
            Candidate(
                key=entry.key,
                select=results.at(entry.key, target.title).select,
                latency=latency_at(context, plan, measured, entry, target),
                bytes_total=footprint(context.inputs[entry.step]).bytes_total,
                quantized=entry.unquantized is not None,
                reference=entry.key == reference_key(plan),
                ruled_out=_why_not_in(rules.runs_in, context, entry),
                runs_everywhere=_why_not_in(EVERYWHERE, context, entry) is None,
            )
            for entry in plan.variants
            if entry.step in context.inputs and target in targets_of(plan, entry.variant)
        ]
        return select_winner(target.title, candidates, rules, plan.missing_targets.get(target.title))

    selection = Selection(targets=tuple(map(selected, plan.recipe.targets)))
    (context.work / SELECT_FILE).write_text(selection.model_dump_json(indent=1) + "\n", encoding="utf-8")


def rules_of(recipe: Recipe) -> Rules:
    """The rules that a recipe's sections state."""
    quantize_max_drop = recipe.quantize.max_drop if recipe.quantize else None
    rules = {**recipe.gate.model_dump(), "rank_by": recipe.rank_by, "runs_in": recipe.runs_in}
    limits = tuple(Limits(**dict(budget)) for budget in recipe.budget)
    return Rules(**rules, quantize_max_drop=quantize_max_drop, budget=limits)


def _why_not_in(names: Sequence[str], context: StepContext, entry: ModelVariant) -> str | None:
    """Why the file that was built for a row does not run in one of these runtimes; None where it runs in all."""
    variant = read_info(context.inputs[entry.step]).variant or entry.variant
    return why_not_in_all(names, variant.format, variant.operators, variant.libraries.get("onnxruntime"))


def read_timings(context: StepContext) -> Measured:
    """The result of the measure step; empty where it failed."""
    folder = context.inputs.get("measure")
    return read_measured(folder) if folder else Measured()


def targets_of(plan: Plan, variant: Variant) -> list[Target]:
    """The targets where a variant runs, or where a reader misses it."""
    devices = {*variant.devices, *variant.absent}
    return [target for target in plan.recipe.targets if target.device in devices]


def latency_at(context: StepContext, plan: Plan, measured: Measured, entry: ModelVariant, target: Target) -> Latency:
    """The timing of a row on a target, or why there is none."""
    timed = measured.latencies.get(f"{target.title} {entry.key}")
    reasons = (
        plan.missing_targets.get(target.title),
        entry.variant.absent.get(target.device),
        failure_of(context, "measure"),
        "it was not timed",
    )
    return timed or Latency(status="not measured", reason=next(filter(None, reasons)))


def failure_of(context: StepContext, step: str) -> str | None:
    """Why a step failed, without paths of this machine: it may be published."""
    reason = context.failures.get(step)
    return reason and strip_paths(reason)
