"""The select step: gate and winner of every target."""

from collections.abc import Sequence
from typing import Any

from compress.measure import Latency
from compress.measure.resources.footprint import footprint
from compress.model_folder.model_info import read_info
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.scoring_steps import reference_key
from compress.pipeline.strip_paths import strip_paths
from compress.recipe.measure_schema import Target
from compress.recipe.schema import Recipe
from compress.runtimes import EVERYWHERE, why_not_in_all
from compress.select.ledger import Ledger, Limits, Rules, TargetResult, Verdict, read_ledger, write_ledger
from compress.select.winner import select_winner
from compress.variants import Variant


def select(context: StepContext, plan: Plan) -> None:
    """Choose the winner on each target from select scores, timings and sizes."""
    ledger, rules = join_ledgers(context, plan, "quality", "measure"), rules_of(plan.recipe)
    entries = {entry.key: entry for entry in plan.variants}
    results: list[TargetResult] = []
    verdicts: list[Verdict] = []
    for title in (target.title for target in plan.recipe.targets):
        found = [result for result in ledger.results if result.target == title]
        facts = {result.key: _facts(context, plan, entries[result.key], rules) for result in found}
        candidates = [result.model_copy(update=facts[result.key]) for result in found]
        verdict, gates = select_winner(title, candidates, rules, plan.missing_targets.get(title))
        results += [TargetResult(key=key, target=title, **each, gate=gates.get(key)) for key, each in facts.items()]
        verdicts.append(verdict)
    write_ledger(context.work, Ledger(results=tuple(results), verdicts=tuple(verdicts)))


def _facts(context: StepContext, plan: Plan, entry: ModelVariant, rules: Rules) -> dict[str, Any]:
    """Return the columns of a row's results that selection reads beside scores and timings."""
    return {
        "bytes_total": footprint(context.inputs[entry.step]).bytes_total,
        "quantized": entry.unquantized is not None,
        "reference": entry.key == reference_key(plan),
        "ruled_out": _why_not_in(rules.runs_in, context, entry),
        "runs_everywhere": _why_not_in(EVERYWHERE, context, entry) is None,
    }


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


def join_ledgers(context: StepContext, plan: Plan, *steps: str) -> Ledger:
    """Return what these steps wrote of every row that was made, on each target where it runs or a reader misses it.

    A row that was not timed there has the reason.
    """
    results = [
        TargetResult(key=entry.key, target=target.title, latency=_not_timed(context, plan, entry, target))
        for entry in plan.variants
        if entry.step in context.inputs
        for target in targets_of(plan, entry.variant)
    ]
    return Ledger.joined(results, [read_ledger(context.inputs[step]) for step in steps if step in context.inputs])


def targets_of(plan: Plan, variant: Variant) -> list[Target]:
    """The targets where a variant runs, or where a reader misses it."""
    devices = {*variant.devices, *variant.absent}
    return [target for target in plan.recipe.targets if target.device in devices]


def _not_timed(context: StepContext, plan: Plan, entry: ModelVariant, target: Target) -> Latency:
    """Why there is no timing of a row on a target, if there is none."""
    reasons = (
        plan.missing_targets.get(target.title),
        entry.variant.absent.get(target.device),
        failure_of(context, "measure"),
        "it was not timed",
    )
    return Latency(status="not measured", reason=next(filter(None, reasons)))


def failure_of(context: StepContext, step: str) -> str | None:
    """Why a step failed, without paths of this machine: it may be published."""
    reason = context.failures.get(step)
    return reason and strip_paths(reason)
