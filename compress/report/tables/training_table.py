"""How the smaller models of a run were made: what they started from, and what they learned from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compress.report.format_numbers import ABSENT, format_percent
from compress.report.report_schema import Provenance, Report
from compress.report.tables.table_type import Cells, Table

Section = Mapping[str, Any]


def training_table(report: Report) -> Table:
    """A row for each thing that decides what a student becomes, a column for each model that was made from another."""
    told = {model: _facts(report, model, making) for model, making in report.makings.items()}
    names = list(dict.fromkeys(name for facts in told.values() for name in facts))
    rows: list[Cells] = [
        {"": name, **{model: facts.get(name, ABSENT) for model, facts in told.items()}} for name in names
    ]
    return Table(("", *told), tuple(rows), texts=frozenset(told))


def _facts(report: Report, model: str, making: Provenance) -> dict[str, str]:
    facts = {"starts from": making.start}
    settings = training_settings(report.recipe, model)
    if not settings:
        return {**facts, "learns from": "nothing: it is left as it is built"}
    facts["learns from"] = describe_losses(settings)
    further = [_teacher(each) for each in settings.get("teachers") or ()]
    if further:
        facts["teachers"] = ", ".join(["the teacher", *further])
    return {**facts, "rows": _rows(report, settings, making)}


def training_settings(recipe: Section, model: str) -> Section | None:
    """The distillation of a model, as a recipe in its long form tells it; None where it had none."""
    found = recipe.get("distill") if model == "student" else (recipe.get("prune") or {}).get("recover")
    return found or None


def describe_losses(settings: Section) -> str:
    """`soft_label 1, hidden_state 2 (cosine), hard_label 0.5`; phases one after another, with their shares."""
    phases = settings.get("phases") or ()
    if not phases:
        return _losses(settings)
    return "; then ".join(f"{format_percent(phase['share'])} of the updates: {_losses(phase)}" for phase in phases)


def _losses(phase: Section) -> str:
    told = [_loss(name, loss) for name, loss in (phase.get("losses") or {}).items() if loss and loss["weight"] != 0.0]
    if phase.get("hard_label"):
        told.append(f"hard_label {phase['hard_label']:g}")
    return ", ".join(told)


def _loss(name: str, loss: Section) -> str:
    form = f" ({loss['form']})" if loss.get("form") else ""
    return f"{name} {_weight(loss['weight'])}{form}"


def _weight(weight: float | Section) -> str:
    return f"{weight['start']:g} to {weight['end']:g}" if isinstance(weight, Mapping) else f"{weight:g}"


def _teacher(further: Section) -> str:
    weight = further.get("weight", 1.0)
    return f"{further['source']}{'' if weight == 1.0 else f' (weighs {weight:g})'}"


def _rows(report: Report, settings: Section, making: Provenance) -> str:
    """`6,000 of train, 2,000 unlabelled, 6,000 augmented (words by bert-base-uncased)`."""
    counts = report.data.rows
    told = [f"{counts['train']:,} of train"] if "train" in counts else []
    if counts.get("unlabelled"):
        told.append(f"{counts['unlabelled']:,} unlabelled")
    if augment := settings.get("augment"):
        count = f"{making.augmented:,} " if making.augmented is not None else ""
        told.append(f"{count}augmented (words by {augment['model']})")
    return ", ".join(told)
