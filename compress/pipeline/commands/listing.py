"""`compress ls`: lists the tables and cards of this installation, and the runs on this machine."""

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from compress import format_numbers as fmt
from compress.cards import available, list_students, list_teachers
from compress.errors import CompressError, UsageError, nearest
from compress.formats import FORMATS
from compress.losses import LOSSES
from compress.measure.quality.robustness import PERTURBATIONS
from compress.pretrain.pretrain_report import read_pretrain_report
from compress.recipe import schema_lookup
from compress.recipe.distill_schema import DEFAULT_LOSSES
from compress.recipe.loss_schema import Losses
from compress.recipe.student_schema import LightStudent
from compress.report.report_schema import REPORT_FILE, read_report
from compress.report.retention import larger_is_better
from compress.runtimes import RUNTIMES
from compress.tasks import KINDS
from compress.tasks.presets import NAMED_TASKS
from compress.variants import VARIANTS, Variant

ListedRow = dict[str, Any]
Rows = list[ListedRow]


def run_folder(name: str, runs: Path) -> Path:
    """Return a run's folder from its name, its path or its report.json."""
    for path in (Path(name), runs / name):
        if path.is_file() or (path / REPORT_FILE).is_file():
            return path
    known = [report.parent.name for report in runs.glob(f"*/{REPORT_FILE}")]
    raise UsageError(f"no finished run is called '{name}' in {runs}{nearest(name, known)}", hint="compress ls runs")


def _tasks(options: argparse.Namespace) -> Iterator[ListedRow]:
    for name, task in NAMED_TASKS.items():
        data = task["data"]
        source = f"hub {data['hub']}" if "hub" in data else f"builtin {data['builtin']}"
        yield {"name": name, "kind": task["kind"], "metric": task.get("metric"), "data": source}


def _kinds(options: argparse.Namespace) -> Iterator[ListedRow]:
    for name, kind in KINDS.items():
        yield {"name": name, "metrics": [metric.name for metric in kind.metrics], "fields": list(kind.fields)}


def _teachers(options: argparse.Namespace) -> Iterator[ListedRow]:
    for card in list_teachers(options.cards):
        row = {"name": card.name, "title": card.title, "family": card.family, "from": card.checkpoint.origin}
        yield row | {"languages": list(card.languages), "licence": card.licence.name if card.licence else None}


def _students(options: argparse.Namespace) -> Iterator[ListedRow]:
    for card in list_students(options.cards):
        origin = card.start if isinstance(card.start, str) else card.start.origin
        layers = card.shape.depth if isinstance(card.shape, LightStudent) else card.shape.layers
        shape = {"layers": layers, "hidden": card.shape.hidden}
        yield {"name": card.name, "title": card.title, **shape, "starts from": origin}


def _recipes(options: argparse.Namespace) -> Iterator[ListedRow]:
    for path in available("recipes", options.cards).values():
        about = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        yield {"name": path.stem, "about": about, "file": str(path)}


def _losses(options: argparse.Namespace) -> Iterator[ListedRow]:
    for name, loss in LOSSES.items():
        row = {"name": name, "by default": "yes" if name in DEFAULT_LOSSES.chosen() else "", "knobs": _settings(name)}
        yield row | {"needs": list(loss.needs), "about": loss.about}


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


def _variants(options: argparse.Namespace) -> Iterator[ListedRow]:
    for variant in VARIANTS.values():
        row = {key: getattr(variant, key) for key in ("name", "format", "precision", "runtime")}
        row |= {"devices": list(variant.devices), "by default on": list(variant.default_on)}
        row |= {"exported": _when_exported(variant), "needs": RUNTIMES[variant.runtime].needs}
        yield row | {"method": variant.quantizer}


def _when_exported(variant: Variant) -> str:
    """Return what a recipe makes of a variant whose format its `export` names."""
    if variant.builder is None:
        return ""
    if variant.on_request:
        return "on request"
    return "competes" if FORMATS[variant.format].competes else "for winners"


def _perturbations(options: argparse.Namespace) -> Iterator[ListedRow]:
    for name, perturb in PERTURBATIONS.items():
        yield {"name": name, "about": (perturb.__doc__ or "").partition("\n")[0]}


def _runs(options: argparse.Namespace) -> Iterator[ListedRow]:
    """Yield a row for each target of each run, with its winner: numbers in json, and text with units for people."""
    named: Rows = []
    for path in sorted(options.runs.glob("*/lock.json")):
        rows = list(_winners(path.parent)) or [{**dict.fromkeys(WINNER_KEYS), "winner": "not finished"}]
        if pretrained := read_pretrain_report(path.parent):
            rows[0] |= {"task": "pretraining", "winner": f"pretraining: {pretrained.shape}"}
        named += ({"name": path.parent.name, **row} for row in rows)
    chosen = [row for row in named if _passes(row, options)]
    if options.sort not in (None, "name"):
        chosen.sort(key=lambda row: _rank(row, options.sort))
    for row in chosen:
        yield row if options.format == "json" else _as_text(row)


RUN_FILTERS = ("task", "target", "min_score", "max_p50", "max_size", "sort")
"""The options of `compress ls runs`."""


def _passes(row: ListedRow, options: argparse.Namespace) -> bool:
    """Whether a winner is within the limits that were given; one without the figure is not."""
    facts = all(getattr(options, name) in (None, row[name]) for name in ("task", "target"))
    # A score of which less is better, an error, is compared from the other side.
    sign = -1 if row["larger_is_better"] is not False else 1
    limits = (("score", options.min_score, sign), ("p50_ms", options.max_p50, 1), ("bytes", options.max_size, 1))
    return facts and all(
        most is None or (row[name] is not None and side * row[name] <= side * most) for name, most, side in limits
    )


def _rank(row: ListedRow, by: str) -> tuple[bool, Any]:
    """Return what puts the best first, and those without the figure last."""
    if by == "date":
        created = row["created"]
        return created is None, -datetime.fromisoformat(created).timestamp() if created else 0
    value = row[{"score": "score", "p50": "p50_ms", "size": "bytes"}[by]]
    sign = -1 if by == "score" and row["larger_is_better"] is not False else 1
    return value is None, sign * value if value is not None else 0


def _winners(run: Path) -> Iterator[ListedRow]:
    """Yield the winner on each target of a finished run: its test score, its speed and its size."""
    with suppress(CompressError):
        report = read_report(run)
        teacher = report.row(report.teacher)
        for verdict in report.verdicts:
            row, result = report.row(verdict.winner), report.result(verdict.winner, verdict.target)
            test = result.test if result else None
            versus = verdict.comparison_with(report.teacher)
            p50 = result.latency.typical() if result else None
            change = test.versus_teacher if test and row is not teacher else None
            yield {
                "task": report.task.name,
                "target": verdict.target,
                "winner": verdict.winner,
                "undecided": report.is_undecided(verdict),
                "metric": report.task.metric,
                "larger_is_better": larger_is_better(report),
                "score": test.primary.value if test else None,
                "vs_teacher": change.value if change else None,
                "p50_ms": p50.value if p50 else None,
                "faster": versus.speedup.value if versus and versus.speedup else None,
                "bytes": row.bytes_total if row else None,
                "smaller": versus.smaller if versus else None,
                "created": report.created,
            }


WINNER_KEYS = (
    *("task", "target", "winner", "undecided", "metric", "larger_is_better", "score", "vs_teacher", "p50_ms"),
    *("faster", "bytes", "smaller", "created"),
)
"""What json holds of a winner."""


def _as_text(row: ListedRow) -> ListedRow:
    """Return the figures of a winner with their units."""
    larger, known = row["larger_is_better"] is not False, row["score"] is not None
    score = f"{fmt.metric(row['metric'])} {fmt.score(row['score'], larger)}" if known else None
    created = row["created"]
    return {
        "name": row["name"],
        "target": row["target"],
        "winner": f"{row['winner'] or 'none'}{', undecided' if row['undecided'] else ''}",
        "score": score,
        "vs teacher": None if row["vs_teacher"] is None else fmt.signed(row["vs_teacher"], larger),
        "p50": None if row["p50_ms"] is None else fmt.milliseconds(row["p50_ms"]),
        "faster": None if row["faster"] is None else fmt.ratio(row["faster"]),
        "size": None if row["bytes"] is None else fmt.size(row["bytes"]),
        "date": created and datetime.fromisoformat(created).astimezone().strftime("%Y-%m-%d %H:%M"),
    }


LISTINGS: dict[str, Callable[[argparse.Namespace], Iterable[ListedRow]]] = {
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
