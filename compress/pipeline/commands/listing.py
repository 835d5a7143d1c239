"""`compress ls`: lists the tables and cards of this installation, and the runs on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from compress.cards import HubCheckpoint, available, list_students, list_teachers
from compress.errors import CompressError, UsageError, nearest
from compress.formats import RUNTIMES
from compress.losses import LOSSES
from compress.measure.quality.robustness import PERTURBATIONS
from compress.recipe import schema_lookup
from compress.recipe.loss_schema import Losses
from compress.recipe.training_schema import DEFAULT_LOSSES
from compress.report.report_schema import REPORT_FILE, read_report
from compress.tasks import KINDS
from compress.tasks.presets import NAMED_TASKS
from compress.variants import VARIANTS

Rows = list[dict[str, Any]]


def listing(what: str, options: argparse.Namespace) -> Rows:
    """Return the rows of one list, each with a `name`."""
    return LISTINGS[what](options)


def run_folder(name: str, runs: Path) -> Path:
    """Return a run's folder from its name, its path or its report.json."""
    path = Path(name)
    if path.is_file() or (path / REPORT_FILE).is_file():
        return path
    if (runs / name / REPORT_FILE).is_file():
        return runs / name
    known = [report.parent.name for report in runs.glob(f"*/{REPORT_FILE}")]
    raise UsageError(f"no finished run is called '{name}' in {runs}{nearest(name, known)}", hint="compress ls runs")


def _tasks(options: argparse.Namespace) -> Rows:
    return [
        {"name": name, "kind": task["kind"], "metric": task.get("metric"), "data": _source(task["data"])}
        for name, task in NAMED_TASKS.items()
    ]


def _source(data: dict[str, Any]) -> str:
    return f"hub {data['hub']}" if "hub" in data else f"builtin {data['builtin']}"


def _kinds(options: argparse.Namespace) -> Rows:
    return [
        {"name": name, "metrics": [metric.name for metric in kind.metrics], "fields": list(kind.fields)}
        for name, kind in KINDS.items()
    ]


def _teachers(options: argparse.Namespace) -> Rows:
    return [
        {
            "name": card.name,
            "title": card.title,
            "family": card.family,
            "from": _checkpoint(card.checkpoint),
            "licence": card.licence.name if card.licence else None,
        }
        for card in list_teachers(options.cards)
    ]


def _checkpoint(checkpoint: Any) -> str:
    return f"hub {checkpoint.hub}" if isinstance(checkpoint, HubCheckpoint) else f"package {checkpoint.package}"


def _students(options: argparse.Namespace) -> Rows:
    return [
        {
            "name": card.name,
            "title": card.title,
            "layers": card.shape.layers,
            "hidden": card.shape.hidden,
            "starts from": card.start if isinstance(card.start, str) else f"hub {card.start.hub}",
        }
        for card in list_students(options.cards)
    ]


def _recipes(options: argparse.Namespace) -> Rows:
    return [
        {"name": path.stem, "about": path.read_text(encoding="utf-8").splitlines()[0].lstrip("# "), "file": str(path)}
        for path in available("recipes", options.cards).values()
    ]


def _losses(options: argparse.Namespace) -> Rows:
    return [
        {
            "name": name,
            "by default": "yes" if name in DEFAULT_LOSSES.chosen() else "",
            "knobs": _settings(name),
            "needs": list(loss.needs),
            "about": loss.about,
        }
        for name, loss in LOSSES.items()
    ]


def _settings(loss: str) -> list[str]:
    """Return a loss's settings with their choices or their default: `form: kl|mse|decoupled`, `others: 8`."""
    (section,) = schema_lookup.sections(Losses.model_fields[loss].annotation)
    return [_setting(name, field) for name, field in section.model_fields.items() if name != "weight"]


def _setting(name: str, field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, str):
        return f"{name}: {'|'.join(get_args(field.annotation))}"
    if isinstance(default, tuple):
        return f"{name}: [{', '.join(default)}]"
    return name if default is None else f"{name}: {default:g}"


def _variants(options: argparse.Namespace) -> Rows:
    return [
        {
            "name": variant.name,
            "format": variant.format,
            "precision": variant.precision,
            "runtime": variant.runtime,
            "devices": list(variant.devices),
            "by default on": list(variant.default_on),
            "needs": RUNTIMES[variant.runtime].needs,
        }
        for variant in VARIANTS.values()
    ]


def _perturbations(options: argparse.Namespace) -> Rows:
    return [
        {"name": name, "about": (perturb.__doc__ or "").partition("\n")[0]} for name, perturb in PERTURBATIONS.items()
    ]


def _runs(options: argparse.Namespace) -> Rows:
    rows: Rows = []
    for path in sorted(options.runs.glob("*/lock.json")):
        row: dict[str, Any] = {"name": path.parent.name, "task": None, "created": None, "winner": None}
        try:
            report = read_report(path.parent)
            winners = [f"{verdict.target}: {verdict.winner or 'none'}" for verdict in report.verdicts]
            row.update(task=report.task.name, created=report.created, winner=winners)
        except CompressError:
            row["winner"] = "not finished"
        rows.append(row)
    return rows


LISTINGS: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "tasks": _tasks,
    "kinds": _kinds,
    "teachers": _teachers,
    "students": _students,
    "recipes": _recipes,
    "losses": _losses,
    "variants": _variants,
    "perturbations": _perturbations,
    "runs": _runs,
}
