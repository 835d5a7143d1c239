"""`compress run` as a function: a recipe in, a run folder and its report out."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from compress.atomic_write import atomic_write
from compress.cards import find_recipe
from compress.console import Console
from compress.environment import LIBRARIES, versions
from compress.errors import CompressError, GateMissed, UsageError
from compress.pipeline.commands.clean import LOCK_FILE, named_steps
from compress.pipeline.commands.smoke import SMOKE_FOLDER, smoke_recipe
from compress.pipeline.execute import Executor, Outcome
from compress.pipeline.graph import Plan
from compress.pipeline.plan import make_plan
from compress.pipeline.preflight.allowed_names import NAMES
from compress.pipeline.preflight.model_availability import origin_problems
from compress.pipeline.preflight.preflight import Findings, check
from compress.pipeline.preflight.unused_settings import unused_settings
from compress.pipeline.resolve import resolve
from compress.pipeline.step_store import StepStore
from compress.pipeline.steps.copy_winners import copy_winners, publish_winners
from compress.pipeline.steps.report_step import DISAGREEMENTS_FILE
from compress.pipeline.torchrun_launch import Launch, leave_group
from compress.recipe.load import dump_recipe, load_recipe, parse_recipe
from compress.recipe.schema import Recipe
from compress.recipe.yaml_lines import dump_yaml
from compress.report.report_schema import REPORT_FILE, Report, read_report
from compress.select.select_winner import passing_at
from compress.tasks.presets import KIND_DEFAULTS, NAMED_TASKS
from compress.tasks.validate_task import task_problems

BESIDE = {DISAGREEMENTS_FILE}
"""What goes into the run's folder with the report."""

RecipeSource = str | Path | Mapping[str, Any]


@dataclass(frozen=True)
class Options:
    """How a recipe is run; none of it changes what comes out."""

    runs: Path = Path("runs")
    cards: tuple[Path, ...] = ()
    begin: str | None = None
    """This step and all that needs it run even if they stand."""
    until: str | None = None
    force: bool = False
    smoke: bool = False

    @property
    def root(self) -> Path:
        """Where steps and runs are kept; smoke runs have a place of their own."""
        return self.runs / SMOKE_FOLDER if self.smoke else self.runs


@dataclass(frozen=True)
class Result:
    """What a run left."""

    folder: Path
    outcome: Outcome
    report: Report | None
    """None where the run was told to stop before it, and on processes that only help to train."""

    def raise_for_gate(self) -> None:
        """Tell that some target has no winner; one that is not on this machine counts where no other is."""
        verdicts = self.report.verdicts if self.report else ()
        here = {target.title for target in self.report.targets if target.present} if self.report else set()
        without = [verdict for verdict in verdicts if verdict.winner is None and verdict.target in here]
        reasons = "; ".join(f"{verdict.target}: {verdict.why}" for verdict in without or verdicts)
        if without and self.report and all(passing_at(self.report, verdict.target) for verdict in without):
            raise CompressError(f"no winner: {reasons}", hint=f"everything else is in {self.folder / 'report.html'}")
        if without:
            raise GateMissed(f"no winner: {reasons}", hint=f"everything measured is in {self.folder / 'report.html'}")
        if verdicts and not here:
            raise CompressError(f"no target of this recipe is on this machine: {reasons}")

    def raise_for_failures(self) -> None:
        """Tell which steps failed, once everything else is written."""
        failed = {
            step: reason for step, reason in self.outcome.failures.items() if self.outcome.status[step] == "failed"
        }
        if failed:
            lines = [f"{step}: {reason}" for step, reason in failed.items()]
            raise CompressError("\n  ".join([f"{len(failed)} step(s) failed; the rest is done:", *lines]))


def read_recipe(source: RecipeSource, overrides: Sequence[str] = (), cards: Sequence[Path] = ()) -> Recipe:
    """Read a recipe from a file, a shipped recipe's name, or a mapping."""
    checks = (lambda recipe: task_problems(recipe.task), unused_settings, partial(origin_problems, cards=cards))
    if isinstance(source, Mapping):
        return parse_recipe(dump_yaml(dict(source)), "recipe", overrides, NAMES, NAMED_TASKS, checks, KIND_DEFAULTS)
    path = Path(source)
    if not path.is_file() and not path.suffix and path.name == str(source):
        path = find_recipe(str(source), cards)
    return load_recipe(path, overrides, NAMES, NAMED_TASKS, checks, KIND_DEFAULTS)


def prepare(source: RecipeSource, overrides: Sequence[str] = (), options: Options = Options()) -> Plan:
    """Read, resolve and plan a recipe; runs nothing."""
    recipe = resolve(read_recipe(source, overrides, options.cards), options.cards)
    if options.smoke:
        recipe = smoke_recipe(recipe, options.root, options.cards)
    return make_plan(recipe, options.cards, limits=not options.smoke)


def run(
    source: RecipeSource,
    *,
    overrides: Sequence[str] = (),
    runs: str | Path = "runs",
    cards: Sequence[str | Path] = (),
    force: bool = False,
    console: Console | None = None,
) -> Report:
    """Run a recipe (a file, a shipped recipe's name or a mapping) and return its report.

    Steps that stand are skipped. A gate that nobody passed is told by a verdict without winner, not by an exception.
    """
    options = Options(runs=Path(runs), cards=tuple(map(Path, cards)), force=force)
    result = execute(prepare(source, overrides, options), options, console or Console("quiet"))
    result.raise_for_failures()
    if result.report is None:
        raise UsageError("compress.run gives a report on the main process only; launch training with the command.")
    return result.report


def execute(plan: Plan, options: Options, console: Console) -> Result:
    """Run a plan into its run folder."""
    launch = Launch.from_environment()
    unheard = Console("quiet", err=StringIO())  # the main process says the same, warnings too
    try:
        return _execute(plan, options, console if launch.is_main else unheard, launch)
    finally:
        leave_group()


def _execute(plan: Plan, options: Options, console: Console, launch: Launch) -> Result:
    store = StepStore(options.root)
    folder = options.root / plan.recipe.name
    executor = Executor(plan, store, console, folder / "events.jsonl", launch)
    forced = forced_steps(plan, options)
    if not launch.is_main:
        return Result(folder, executor.run(forced, options.until), None)
    with store.hold(f"run-{plan.recipe.name}", console):
        findings = check(plan, store, forced, options.cards)
        findings.refuse()
        for warning in findings.warnings:
            console.warn(warning)
        _open_folder(folder, plan)
        outcome = executor.run(forced, options.until)
        report = _finish(folder, plan, store, outcome, console)
    return Result(folder, outcome, report)


def look_over(plan: Plan, options: Options) -> Findings:
    """All that can be checked before the first step."""
    return check(plan, StepStore(options.root), forced_steps(plan, options), options.cards)


def forced_steps(plan: Plan, options: Options) -> set[str]:
    """The steps that run even if they stand."""
    if options.force:
        return {step.name for step in plan.steps}
    if options.begin:
        return plan.dependents([step.name for step in plan.matching(options.begin)])
    return set()


def _open_folder(folder: Path, plan: Plan) -> None:
    """Write what the run is before it starts, so that `clean` spares its steps from the first moment.

    Where a report of an earlier run stands, its recipe and steps stay beside it until the new one replaces it.
    """
    if (folder / REPORT_FILE).is_file():
        _write_lock(folder, plan, spare=named_steps(folder / LOCK_FILE))
    else:
        _write_lock(folder, plan)
        atomic_write(folder / "recipe.yaml", dump_recipe(plan.recipe))


def _write_lock(folder: Path, plan: Plan, spare: Collection[str] = ()) -> None:
    steps = {step.name: f"{step.name}-{step.fingerprint}" for step in plan.steps}
    lock = {
        "schema_version": 1,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "steps": steps,
        "earlier": sorted(set(spare) - set(steps.values())),
        "versions": versions(LIBRARIES),
    }
    atomic_write(folder / LOCK_FILE, json.dumps(lock, indent=2) + "\n")


def _finish(folder: Path, plan: Plan, store: StepStore, outcome: Outcome, console: Console) -> Report | None:
    """Copy the report and the winners into the run's folder and publish, when the run came that far."""
    if "report" not in outcome.records:
        return None
    made = store.folder("report", plan.step("report").fingerprint)
    report = read_report(made)
    for file in sorted(path for path in made.iterdir() if path.name.startswith("report.") or path.name in BESIDE):
        atomic_write(folder / file.name, file.read_text(encoding="utf-8"))
    copy_winners(folder, plan, store, report)
    atomic_write(folder / "recipe.yaml", dump_recipe(plan.recipe))
    _write_lock(folder, plan)
    if plan.recipe.publish and not any(verdict.winner for verdict in report.verdicts):
        console.warn("nothing is published: there is no winner")
    elif plan.recipe.publish:
        publish_winners(folder, report, plan.recipe.publish, console)
    return report
