"""Plans cascades: the steps that make each of the files of two models, score it and, with all others, time it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from compress.errors import UsageError, nearest
from compress.formats import FORMATS
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.plan_variants import add_scoring, cpu_target
from compress.pipeline.steps.cascade_step import (
    CASCADE_VARIANT,
    CascadePart,
    CascadeSettings,
    cascade,
    score_cascade,
)
from compress.pipeline.steps.scoring_steps import reference_key
from compress.pipeline.steps.select_step import rules_of
from compress.recipe.measure_schema import Target
from compress.recipe.student_schema import Cascade
from compress.steps.model_step import PlannedModel

SECTION = "cascade"
ScoringKind = Literal["score", "perturb"]
PREFERRED = ("numpy", "onnx", "openvino")
"""Formats of the files that a cascade is made of where the recipe does not name them; others come after them."""


def add_cascades(plan: Plan) -> None:
    """Add every cascade of the recipe, each with a row of the ledger."""
    target = cpu_target(plan)
    if target is None:
        return
    pairs = [(each, parts_of(plan, each, target)) for each in cascades_of(plan)]
    compared = len(plan.variants) + len(pairs) - 1
    for each, parts in pairs:
        _add_cascade(plan, each, *parts, target, compared)


def cascades_of(plan: Plan) -> Sequence[Cascade]:
    """Return the cascades of a recipe; those that `auto` means are of pairs of its models."""
    if plan.recipe.cascade != "auto":
        return plan.recipe.cascade
    light = [model for model in plan.final if not model.has_attention]
    others = [model for model in plan.final if model.has_attention]
    later = list(dict.fromkeys(model.name for model in (*(others if light else ()), plan.teacher)))
    firsts = [model.name for model in light or others]
    found = [Cascade(first=first, then=then) for first in firsts for then in later if first != then]
    if not found:
        hint = "add a student: student: [half-depth, static]"
        raise UsageError("cascade: auto needs two models, and this recipe has only its teacher.", hint=hint)
    return found


def parts_of(plan: Plan, each: Cascade, target: Target) -> tuple[list[CascadePart], list[CascadePart]]:
    """Return the files that may be the first model of a cascade, and its second."""
    first, then = (_files(plan, key, name) for key, name in (("first", each.first), ("then", each.then)))
    return [_part(plan, file, target) for file in first], [_part(plan, file, target) for file in then]


def _files(plan: Plan, key: str, name: str) -> list[ModelVariant]:
    """Return the files of a model that a cascade may use, the preferred one first, or the one that is named."""
    rows = [row for row in plan.variants if "cpu" in row.variant.devices]
    if "/" in name:
        known = {row.key: [row] for row in rows}
    else:
        known = {model.name: _by_preference(rows, model.name) for model in plan.evaluated}
    if not known.get(name):
        what = "file of this run" if "/" in name else "model of this run"
        raise UsageError(f"cascade.{key}: no {what} is called '{name[:60]}'{nearest(name, known)}")
    return known[name]


def _by_preference(rows: Sequence[ModelVariant], model: str) -> list[ModelVariant]:
    """Return the first quantized file of the preferred format that a model has, and the first unquantized one."""
    own = [row for row in rows if row.model == model]
    order = [*PREFERRED, *FORMATS]
    forms = sorted({row.variant.format for row in own if row.variant.builder}, key=order.index)
    files = [row for row in own if row.variant.format in forms[:1]] or own[:1]
    quantized = [row for row in files if row.variant.quantizer]
    plain = [row for row in files if not row.variant.quantizer]
    return [*quantized[:1], *plain[:1]]


def _part(plan: Plan, row: ModelVariant, target: Target) -> CascadePart:
    """Return a file with the steps that made and scored it, each text by itself where answers depend on the batch."""
    alone = target.model_copy(update={"batch": 1})
    both: Sequence[tuple[ScoringKind, Mapping[str, str]]] = (("score", row.scores), ("perturb", row.perturbs))
    scored = {
        kind: _scored_alone(plan, row, steps[target.title], kind, alone)
        for kind, steps in both
        if target.title in steps
    }
    return CascadePart(row.key, row.step, scored["score"], scored.get("perturb"), row.fallback)


def _scored_alone(plan: Plan, row: ModelVariant, step: str, kind: ScoringKind, alone: Target) -> str:
    """Return the step with a file's outputs for texts one by one, which is ``step`` where the batch does not matter."""
    if not row.variant.batch_sensitive:
        return step
    parent = next(need for need in plan.step(step).needs if need != "data")
    return add_scoring(plan, kind, plan.model(row.model), row.variant, parent, alone)


def _add_cascade(
    plan: Plan,
    each: Cascade,
    first: Sequence[CascadePart],
    then: Sequence[CascadePart],
    target: Target,
    compared: int,
) -> None:
    recipe, name = plan.recipe, each.model
    if any(name == model.name for model in plan.cascades):
        raise UsageError(f"cascade: {each.first} and then {each.then} is named twice.")
    reference = next(row for row in plan.variants if row.key == reference_key(plan)).scores[target.title]
    settings = CascadeSettings(rules_of(recipe), recipe.measure.bootstrap, recipe.seed, compared)
    run = partial(cascade, first=first, then=then, reference=reference, settings=settings)
    judging = settings.rules.model_dump(
        mode="json", include={"max_drop", "strict", "max_class_drop", "quantize_max_drop"}
    )
    hashed: dict[str, Any] = {"first": [part.key for part in first], "then": [part.key for part in then]}
    hashed |= {"rules": judging, "bootstrap": settings.bootstrap, "seed": settings.seed, "compared": compared}
    parts, options = (*first, *then), {"optional": True, "tolerant": True}
    needed = [step for part in parts for step in (part.step, part.scored, part.judged) if step]
    made = plan.add(f"{SECTION}-{name}", SECTION, hashed, _distinct("data", *needed, reference), run, **options)
    plan.cascades.append(PlannedModel(name, made, None, SECTION, has_attention=False))
    steps = {"score": _add_scores(plan, "score", name, made, first, then)}
    if recipe.measure.robustness:
        steps["perturb"] = _add_scores(plan, "perturb", name, made, first, then)
    titles = [each.title for each in plan.present_targets if each.device == "cpu"]
    scores = dict.fromkeys(titles, steps["score"])
    perturbs = dict.fromkeys(titles, steps["perturb"]) if "perturb" in steps else {}
    plan.variants.append(ModelVariant(name, CASCADE_VARIANT, made, scores, perturbs))


def _add_scores(
    plan: Plan, kind: ScoringKind, name: str, made: str, first: Sequence[CascadePart], then: Sequence[CascadePart]
) -> str:
    """The step that combines the answers of a cascade's models to the texts, or to changed ones."""
    ones, others = (_answers(parts, kind) for parts in (first, then))
    run = partial(score_cascade, made=made, first=ones, then=others, changed=kind == "perturb")
    needs = _distinct("data", made, *ones.values(), *others.values())
    return plan.add(f"{kind}-{name}", kind, {SECTION: name}, needs, run, optional=True, tolerant=True)


def _answers(parts: Sequence[CascadePart], kind: ScoringKind) -> Mapping[str, str]:
    steps = {part.key: part.scored if kind == "score" else part.perturbed for part in parts}
    return {key: step for key, step in steps.items() if step}


def _distinct(*names: str) -> list[str]:
    return list(dict.fromkeys(names))
