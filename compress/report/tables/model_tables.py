"""How the models of a run were made: how each was trained, the scores of several trainings, and what pruning kept."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from compress import format_numbers as fmt
from compress.errors import pluralize
from compress.model_folder.model_history import TrialInfo
from compress.prune.latency_table import SpeedupAttempt, SpeedupResult
from compress.report.report_schema import LedgerRow, Report, ReportModel
from compress.report.retention import larger_is_better
from compress.report.run_facts import Provenance, PrunedStructure, PrunedUnits, TargetFacts
from compress.report.speedup_breakdown import speedup_of_cut
from compress.report.tables.machine_facts import describe_target
from compress.report.tables.speed_tables import format_p50
from compress.steps import STEPS
from compress.steps.model_step import UNTRAINED, settings_at
from compress.tables import Cells, Table, make_table

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
    section = model.section if model else ""
    settings = training_settings(report.recipe, section)
    if not settings:
        step = STEPS.get(section)
        return {**facts, "losses": step.other_losses if step else UNTRAINED}
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


def trial_cells(trials: Sequence[TrialInfo], larger_is_better: bool) -> dict[str, str]:
    """Return a cell for each training, and one for the seeds of each point of a grid that has several.

    `seed 3` → `84.1 on select, 83.0 on test (used)`, `5 seeds` → `83.6 ± 0.4 on select, 82.9 ± 0.6 on test`.
    """
    scored = [trial.score for trial in trials if trial.score is not None]
    best = (max if larger_is_better else min)(scored, default=None)
    used = next(trial for trial in trials if trial.score == best)
    points: dict[str, list[TrialInfo]] = {}
    for trial in trials:
        points.setdefault(_point(trial), []).append(trial)
    cells: dict[str, str] = {}
    for point, seeds in points.items():
        for trial in seeds:
            name = ", ".join(filter(None, [point, f"seed {trial.seed}" if len(seeds) > 1 else ""]))
            cells[name] = _scores(trial, larger_is_better) + (" (used)" if trial is used else "")
        if len(seeds) > 1:
            name = ", ".join(filter(None, [point, f"mean of {pluralize(len(seeds), 'seed')}"]))
            cells[name] = _spread(seeds, larger_is_better)
    return cells


def _point(trial: TrialInfo) -> str:
    """Return `batch_size 16, learning_rate 3e-05`; empty without a grid."""
    return ", ".join(f"{name} {value:g}" for name, value in trial.settings.items())


def _scores(trial: TrialInfo, larger_is_better: bool) -> str:
    test = f", {fmt.score(trial.test, larger_is_better)} on test" if trial.test is not None else ""
    return f"{fmt.score(trial.score, larger_is_better)} on select{test}"


def _spread(trials: Sequence[TrialInfo], larger_is_better: bool) -> str:
    """Return means with standard deviations."""
    parts = []
    for role, scores in (("select", [each.score for each in trials]), ("test", [each.test for each in trials])):
        known = [score for score in scores if score is not None]
        if len(known) > 1:
            mean, deviation = statistics.mean(known), statistics.stdev(known)
            parts.append(f"{fmt.score(mean, larger_is_better)} ± {fmt.score(deviation, larger_is_better)} on {role}")
    return ", ".join(parts) or fmt.ABSENT


def pruning_table(structure: PrunedStructure) -> Table:
    """Return a row a layer: how many heads and FFN neurons it kept, and their share of its importance."""
    rows: list[Cells] = [
        {
            "layer": str(number),
            "heads": _count(heads),
            "their importance": _share(heads),
            "FFN neurons": _count(ffn),
            "importance of the neurons": _share(ffn),
        }
        for number, (heads, ffn) in enumerate(zip(structure.heads, structure.ffn, strict=True))
    ]
    return make_table(rows, names=1)


def describe_goal(reached: SpeedupResult) -> str:
    """A goal of speed-up and how latency was measured: `2× in onnx-int8 (1 thread, batch 1, 24 word pieces; …)`."""
    table = reached.table
    usage = table.model_dump(include={"device", "threads", "batch", "length"})
    conditions = describe_target(TargetFacts(title=table.device, **usage))
    return f"{reached.goal:g}× in {table.variant} ({conditions}; {table.processor})"


def speedup_table(report: Report, model: str, reached: SpeedupResult) -> Table:
    """Return a row for each choice that the cut timed, and one for the timing of all variants, at the cut's target."""
    structure = report.pruned[model]
    before, after, timed = speedup_of_cut(report, model, reached) or (None, None, None)
    chosen = reached.attempts[reached.chosen]
    whole = reached.table.model_time(chosen.heads, chosen.ffn) * chosen.predicted
    rows: list[Cells] = [
        {
            "": "before pruning",
            "heads": _sizes([units.total for units in structure.heads]),
            "FFN neurons": _sizes([units.total for units in structure.ffn]),
            "latency by the table": fmt.milliseconds(whole),
            "faster by the table": fmt.ABSENT,
            "faster, measured": fmt.ABSENT,
            "95 %": fmt.ABSENT,
            "p50": _p50(report, before, structure.target),
        }
    ]
    for number, attempt in enumerate(reached.attempts):
        kept = ", kept" if number == reached.chosen else ""
        measured = {"faster, measured": fmt.ratio(attempt.measured)}
        rows.append({"": f"attempt {number + 1}{kept}", **_predicted(attempt, whole), **measured})
    rows.append(
        {
            "": "timing of all variants",
            **_predicted(chosen, whole),
            "faster, measured": fmt.ratio(timed.value if timed else None),
            "95 %": fmt.span(timed, fmt.ratio),
            "p50": _p50(report, after, structure.target),
        }
    )
    return make_table(rows, names=3)


def _predicted(attempt: SpeedupAttempt, whole: float) -> Cells:
    return {
        "heads": _sizes(attempt.heads),
        "FFN neurons": _sizes(attempt.ffn),
        "latency by the table": fmt.milliseconds(whole / attempt.predicted),
        "faster by the table": fmt.ratio(attempt.predicted),
    }


def _sizes(layers: Sequence[int | None]) -> str:
    return fmt.ABSENT if None in layers else ", ".join(map(str, layers))


def _p50(report: Report, row: LedgerRow | None, title: str | None) -> str:
    result = report.result(row.key, title) if row else None
    return format_p50(result.latency) if result else fmt.ABSENT


def _count(units: PrunedUnits) -> str:
    if not units.kept:
        return "dropped"
    return f"{units.kept:,}" if units.total is None else f"{units.kept:,} of {units.total:,}"


def _share(units: PrunedUnits) -> str:
    return fmt.ABSENT if units.importance is None else fmt.percent(units.importance)
