"""How the models of a run were trained: initial weights, losses, teachers, rows, and what was left to `auto`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compress import format_numbers as fmt
from compress.report.report_schema import Report, ReportModel
from compress.report.retention import larger_is_better
from compress.report.run_facts import Provenance
from compress.report.tables.trial_cells import trial_cells
from compress.steps import STEPS
from compress.steps.model_step import settings_at
from compress.tables import Cells, Table

Section = Mapping[str, Any]


def training_table(report: Report) -> Table:
    """A row a fact, a column for each model that was made from another, or trained with settings left to `auto`."""
    models = {model.name: model for model in report.models}
    first = [name for name in {**report.chosen, **report.precisions, **report.trials} if name not in report.makings]
    facts: dict[str, dict[str, str]] = {name: {} for name in first}
    facts |= {name: _facts(report, models.get(name), one) for name, one in report.makings.items()}
    for name, chosen in report.chosen.items():
        facts[name] |= {f"{key} (auto)": setting.text for key, setting in chosen.items()}
    for name, precision in report.precisions.items():
        facts[name]["precision (auto)"] = precision
    for name, trials in report.trials.items():
        facts[name] |= trial_cells(trials, larger_is_better(report))
    names = list(dict.fromkeys(name for cells in facts.values() for name in cells))
    rows: list[Cells] = [
        {"": name, **{model: cells.get(name, fmt.ABSENT) for model, cells in facts.items()}} for name in names
    ]
    return Table(("", *facts), tuple(rows), sentences=frozenset(facts))


def _facts(report: Report, model: ReportModel | None, provenance: Provenance) -> dict[str, str]:
    facts = {"initial weights": provenance.start}
    settings = training_settings(report.recipe, model.section if model else "")
    if not settings:
        return {**facts, "losses": "none: it is not trained"}
    facts["losses"] = describe_losses(settings)
    if teachers := settings.get("teachers"):
        weighted = [(teacher["source"], teacher.get("weight", 1.0)) for teacher in teachers]
        shown = (source if weight == 1.0 else f"{source} (weight {weight:g})" for source, weight in weighted)
        facts["teachers"] = ", ".join(["the teacher", *shown])
    return {**facts, "rows": _describe_rows(report, settings, provenance)}


def training_settings(recipe: Section, section: str) -> Section | None:
    """Return the distillation settings of a recipe's section, in the long form; None if it trains nothing."""
    step = STEPS.get(section)
    return settings_at(recipe, step.training) if step and step.training else None


def describe_losses(settings: Section) -> str:
    """Return losses with their weights: `soft_label 1, hidden_state 2 (cosine), hard_label 0.5`, by phase."""
    phases = settings.get("phases") or ()
    if not phases:
        return _describe_phase(settings)
    return "; then ".join(f"{fmt.percent(phase['share'])} of the updates: {_describe_phase(phase)}" for phase in phases)


def _describe_phase(phase: Section) -> str:
    losses = (phase.get("losses") or {}).items()
    parts = [_describe_loss(name, loss) for name, loss in losses if loss and loss["weight"] != 0.0]
    if phase.get("hard_label"):
        parts.append(f"hard_label {phase['hard_label']:g}")
    return ", ".join(parts)


def _describe_loss(name: str, loss: Section) -> str:
    weight, form = loss["weight"], f" ({loss['form']})" if loss.get("form") else ""
    shown = f"{weight['start']:g} to {weight['end']:g}" if isinstance(weight, Mapping) else f"{weight:g}"
    return f"{name} {shown}{form}"


def _describe_rows(report: Report, settings: Section, provenance: Provenance) -> str:
    """`6,000 of train, 2,000 unlabelled, 6,000 augmented (words by bert-base-uncased)`."""
    counts = report.data.rows
    parts = [f"{counts['train']:,} of train"] if "train" in counts else []
    if counts.get("unlabelled"):
        parts.append(f"{counts['unlabelled']:,} unlabelled")
    if augment := settings.get("augment"):
        count = f"{provenance.augmented:,} " if provenance.augmented is not None else ""
        parts.append(f"{count}augmented (words by {augment['model']})")
    return ", ".join(parts)
