"""The ways to make a model smaller that are compared: each is a recipe, run by the command line as a user would."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.defaults.real_sets import SETS
from benchmarks.pruning.pruning_results import Entry
from compress.errors import CompressError
from compress.measure.timing.worker_process import error_line
from compress.report.report_schema import REPORT_FILE, LedgerRow, Report, read_report
from compress.storage.atomic_write import atomic_write

TEACHER = "minilm-l6"
TARGETS = {"own-lengths": "data", "128-pieces": 128}
"""One row a call on one thread: the length of each."""
VARIANTS = ("onnx-fp32", "onnx-int8")
CUT_ALONE = " without recovery"
PARENTS = {"teacher": {}, "student": {"student": {"layers": 0.5}}}
"""The model before pruning: sections of the recipe beyond the teacher's."""


@dataclass(frozen=True)
class Case:
    """One way to make a model smaller."""

    name: str
    parent: str
    """The model before pruning."""
    sections: Mapping[str, Any] = field(default_factory=dict)
    """Sections of the recipe beyond the parent's."""

    @property
    def model(self) -> str:
        """The name of the smaller model in reports."""
        return "pruned" if "prune" in self.sections else "student"


def cases(criteria: tuple[str, ...], shares: tuple[float, ...], speedups: tuple[float, ...]) -> tuple[Case, ...]:
    """Return every case: criteria at remaining shares of parameters, fewer layers, and goals of latency."""
    by_share = [
        Case(f"{criterion} {share:g}", "teacher", {"prune": {"criterion": criterion, "to": {"parameters": share}}})
        for criterion in criteria
        for share in shares
    ]
    by_latency = [
        Case(
            f"speedup {speedup:g} at {target}",
            "student",
            {"prune": {"to": {"speedup": speedup}, "target": target, "variant": "onnx-int8"}},
        )
        for target in TARGETS
        for speedup in speedups
    ]
    layers = [Case(f"{count} layers", "teacher", {"student": {"layers": count}}) for count in (4, 3, 2)]
    alone = [*map(_without_recovery, by_share), *map(_without_recovery, by_latency)]
    return (*alone, *layers, *by_latency, *by_share)


def _without_recovery(case: Case) -> Case:
    return Case(case.name + CUT_ALONE, case.parent, {"prune": {**case.sections["prune"], "recover": False}})


def run_case(case: Case, set_name: str, folder: Path, rows: int, measure: Mapping[str, Any]) -> Entry:
    """Run a case's recipe in ``folder``, whose steps all cases of a set share, and read its report."""
    folder.mkdir(parents=True, exist_ok=True)
    task = SETS[set_name].section(folder)
    task["data"] = {**task["data"], "limit": rows}
    recipe = {
        "task": task,
        "teacher": TEACHER,
        **PARENTS[case.parent],
        **case.sections,
        "quantize": "dynamic",
        "measure": dict(measure),
        "gate": {"max_drop": 1.0},
        "targets": [
            {"name": name, "device": "cpu", "threads": 1, "batch": 1, "length": length}
            for name, length in TARGETS.items()
        ],
    }
    name = case.name.replace(" ", "-")
    atomic_write(folder / f"{name}.yaml", yaml.safe_dump(recipe, sort_keys=False))
    command = [sys.executable, "-m", "compress", "run", f"{name}.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not (folder / "runs" / name / REPORT_FILE).is_file():  # a run without a winner has a report too
        raise CompressError(error_line(done.stderr))
    return _entry(case, set_name, read_report(folder / "runs" / name))


def _entry(case: Case, set_name: str, report: Report) -> Entry:
    seconds = {step.name: step.seconds for step in report.steps}
    rows = ((each, report.row(f"{case.model}/{each}"), report.row(f"{case.parent}/{each}")) for each in VARIANTS)
    both = {variant: (smaller, before) for variant, smaller, before in rows if smaller and before}
    if not both:
        raise CompressError("the report has no exported model to compare.")
    first, whole = next(iter(both.values()))
    if reason := first.reason or whole.reason:
        raise CompressError(reason)
    return Entry(
        set=set_name,
        case=case.name,
        scores={variant: score for variant, (row, _) in both.items() if (score := _score(report, row)) is not None},
        before={variant: score for variant, (_, row) in both.items() if (score := _score(report, row)) is not None},
        speedups={
            f"{variant} {title}": slower / faster
            for variant, (smaller, before) in both.items()
            for title in TARGETS
            if (faster := _p50(report, smaller, title)) and (slower := _p50(report, before, title))
        },
        parameters=_remaining(first, whole),
        cut_seconds=seconds.get("cut"),
        recover_seconds=seconds.get("recover") or (seconds.get("distill") if case.model == "student" else None),
    )


def _score(report: Report, row: LedgerRow) -> float | None:
    tests = [result.test for result in report.results if result.key == row.key and result.test]
    return tests[0].primary.value if tests else None


def _p50(report: Report, row: LedgerRow, title: str) -> float | None:
    result = report.result(row.key, title)
    return result.latency.model.p50.value if result and result.latency.model else None


def _remaining(row: LedgerRow, before: LedgerRow) -> float | None:
    """Return the share of the parameters outside word vectors that is left, where both are known."""
    if row.footprint is None or before.footprint is None:
        return None
    left, whole = row.footprint.encoder_parameters, before.footprint.encoder_parameters
    return left / whole if left and whole else None
