"""`compress run` as a function: a recipe in, a run folder and its report out.

A recipe is resolved first: filled with the settings of its cards, over which its own keys take precedence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from compress.cards import find_recipe
from compress.console import Console
from compress.data.loading.data_digest import file_problems
from compress.data.loading.file_columns import column_problems
from compress.errors import CompressError, GateMissed, Problem, UsageError
from compress.pipeline.commands.smoke import SMOKE_FOLDER, smoke_recipe
from compress.pipeline.execute import Executor, Outcome
from compress.pipeline.forecast.step_forecasts import StepForecasts, StepRow, time_left
from compress.pipeline.graph import Plan
from compress.pipeline.plan import make_plan
from compress.pipeline.preflight.preflight import Findings, check, source_problems
from compress.pipeline.preflight.recipe_checks import NAMES, service_problems, unused_settings
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run_lock import keep_in_previous, replacing, write_lock
from compress.pipeline.run_output import LOG_FILE, Remaining
from compress.pipeline.step_store import StepStore
from compress.pipeline.steps.latency_step import goal_problems
from compress.pipeline.steps.package_step import copy_winners
from compress.pipeline.steps.provenance import describe_auto
from compress.pipeline.strip_paths import recipe_without_paths
from compress.pipeline.torchrun_launch import Launch, leave_group
from compress.recipe.load import dump_recipe, load_recipe, parse_recipe
from compress.recipe.schema import Recipe
from compress.recipe.yaml_lines import dump_yaml
from compress.report.report_schema import PROBE_FILE, PROBE_PAGE, REPORT_FILE, ROWS_PAGE, Report, read_report
from compress.report.winner_summary import remedy
from compress.storage.atomic_write import atomic_write
from compress.tasks.validate_task import task_problems
from compress.variants import format_problems, left_out_formats

BESIDE_REPORT = (ROWS_PAGE, PROBE_PAGE, PROBE_FILE)
"""Files that a report may have beside it."""
RecipeSource = str | Path | Mapping[str, Any]


class Phase(NamedTuple):
    """Of what a run is a part, for the live line."""

    title: str
    """Before its stages."""
    whole: Plan
    """All steps of which its own are some: the time left is theirs."""


@dataclass(frozen=True)
class Options:
    """How a recipe is run; none of it changes the result."""

    runs: Path = Path("runs")
    cards: tuple[Path, ...] = ()
    begin: str | None = None
    """This step and all that depend on it run even if they are cached."""
    until: str | None = None
    force: bool = False
    smoke: bool = False
    folder: Path | None = None
    """That of the run; by default the recipe's name in the folder of runs."""
    phase: Phase | None = None
    """None: it is no part of anything."""

    @property
    def root(self) -> Path:
        """The folder of steps and runs; smoke runs have their own."""
        return self.runs / SMOKE_FOLDER if self.smoke else self.runs


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    folder: Path
    outcome: Outcome
    report: Report | None
    """None where the run stopped before it (``until``), and on processes that only help to train."""

    def raise_for_gate(self, within: str = "") -> None:
        """Raise where a target has no winner: `GateMissed` if the gate lets no variant win, else as none was timed.

        ``within``: a hint on how to come within the recipe's budget, where that alone keeps rows from winning.

        A target that is not on this machine counts only where no other is.
        """
        if self.report is None:
            return
        here = {target.title for target in self.report.targets if target.present}
        without = [each for each in self.report.verdicts if each.winner is None and each.target in here]
        reasons = "; ".join(f"{each.target}: {each.why}" for each in without or self.report.verdicts)
        gates = [[row.gate for _, row in self.report.rows_at(each.target) if row.gate] for each in without]
        every = [gate for each in gates for gate in each]
        helps = remedy(every, within if self.report.recipe.get("budget") else "")
        hint = "; ".join(filter(None, [helps, f"everything measured is in {self.folder / 'report.html'}"]))
        if any(not any(gate.may_win for gate in each) for each in gates):
            raise GateMissed(f"no winner: {reasons}", hint=hint)
        if without:  # variants that may win could not be timed
            raise CompressError(f"no winner: {reasons}", hint=hint)
        if self.report.verdicts and not here:
            raise CompressError(f"no target of this recipe is on this machine: {reasons}")

    def raise_for_failures(self) -> None:
        """Raise with the steps that failed, once everything else is written."""
        if failed := self.failed:
            raise CompressError("\n  ".join([f"{len(failed)} step(s) failed; the rest is done:", *failed]))

    @property
    def failed(self) -> list[str]:
        """The steps that failed, each with its reason."""
        reasons, status = self.outcome.failures, self.outcome.status
        return [f"{step}: {reason}" for step, reason in reasons.items() if status[step] == "failed"]


def read_recipe(source: RecipeSource, overrides: Sequence[str] = (), cards: Sequence[Path] = ()) -> Recipe:
    """Read a recipe from a file, a shipped recipe's name, or a mapping."""
    checks = (unused_settings, format_problems, goal_problems, service_problems, _columns)
    section_checks = (
        lambda recipe: task_problems(recipe.task),
        lambda recipe: file_problems(recipe.task.data),
        partial(source_problems, cards=cards),
    )
    if isinstance(source, Mapping):
        text = dump_yaml(dict(source))
        return parse_recipe(text, "recipe", overrides, NAMES, checks, section_checks=section_checks)
    path = Path(source)
    if not path.is_file() and not path.suffix and path.name == str(source):
        path = find_recipe(str(source), cards)
    return load_recipe(path, overrides, NAMES, checks, section_checks)


def _columns(recipe: Recipe) -> Iterator[Problem]:
    """Yield columns that files do not have, of a task that is right by itself."""
    if not any(task_problems(recipe.task)):
        yield from column_problems(recipe.task)


def prepare(source: RecipeSource, overrides: Sequence[str] = (), options: Options = Options()) -> Plan:
    """Read, resolve and plan a recipe; runs nothing."""
    written = read_recipe(source, overrides, options.cards)
    recipe = resolve(written, options.cards)
    if options.smoke:
        recipe = smoke_recipe(recipe, options.root, options.cards)
    return make_plan(recipe, options.cards, limits=not options.smoke, left_out=left_out_formats(written))


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

    Cached steps are skipped. Where no variant passed the gate the verdict has no winner; that is no exception.
    """
    options = Options(runs=Path(runs), cards=tuple(map(Path, cards)), force=force)
    result = execute(prepare(source, overrides, options), options, console or Console("quiet"))
    result.raise_for_failures()
    if result.report is None:
        raise UsageError("compress.run returns a report on the main process only; launch training with the command.")
    return result.report


def execute(plan: Plan, options: Options, console: Console) -> Result:
    """Run a plan into its run folder."""
    launch = Launch.from_environment()
    silent = Console("quiet", err=StringIO())  # the main process prints the same, warnings too
    try:
        return _execute(plan, options, console if launch.is_main else silent, launch)
    finally:
        leave_group()


def _execute(plan: Plan, options: Options, console: Console, launch: Launch) -> Result:
    store = StepStore(options.root)
    folder = options.folder or options.root / plan.recipe.name
    forced = forced_steps(plan, options)
    plan.until(options.until)  # an unknown name is refused before the folder is touched
    left = _time_left(plan, options, store, forced) if console.has_live_line else None
    phase = options.phase.title if options.phase else ""
    executor = Executor(plan, store, console, folder / "events.jsonl", launch, folder / LOG_FILE, left, phase)
    if not launch.is_main:
        return Result(folder, executor.run(forced, options.until), None)
    findings = check_plan(plan, options)
    findings.refuse()
    for warning in findings.warnings:
        console.warn(warning)
    with store.hold(f"run-{plan.recipe.name}", console):
        if kept := _keep_previous(folder, plan):
            console.note(f"{folder} holds the report of another recipe: it is kept in {kept}")
        _open_folder(folder, plan, store)
        outcome = executor.run(forced, options.until)
        report = _finish(folder, plan, store, outcome)
    return Result(folder, outcome, report)


def _time_left(plan: Plan, options: Options, store: StepStore, forced: set[str]) -> Remaining:
    """Return what describes the time left; that of a phase includes those that follow it."""
    later = list[StepRow]()
    if options.phase is not None:
        own = {step.name for step in plan.until(options.until)}
        whole = StepForecasts(options.phase.whole, store, options.cards, ()).rows()
        later = [row for row in whole if row["step"] not in own]
    return time_left(StepForecasts(plan, store, options.cards, forced).rows(), later)


def note_last_step(plan: Plan, options: Options, result: Result, console: Console) -> None:
    """Say where the result of the step is at which a run was to stop."""
    if options.until and result.report is None:
        last = plan.matching(options.until)[-1].name
        if last in result.outcome.records:
            console.note(f"{last} is in {StepStore(options.root).folder_of(result.outcome.records[last])}")


def check_plan(plan: Plan, options: Options) -> Findings:
    """Check everything that can be checked before the first step."""
    return check(plan, StepStore(options.root), forced_steps(plan, options), options.cards)


def forced_steps(plan: Plan, options: Options) -> set[str]:
    """The steps that run even if they are cached."""
    if options.force:
        return {step.name for step in plan.steps}
    if options.begin:
        return plan.dependents([step.name for step in plan.matching(options.begin)])
    return set()


def _keep_previous(folder: Path, plan: Plan) -> Path | None:
    """Keep the report, winners and steps of a run whose recipe was another one; returns where, if there are any.

    They get a folder of their own, by the time of the report, before anything of it is replaced.
    """
    try:
        report = read_report(folder)
    except CompressError:  # there is none, or none that this version reads
        return None
    if report.recipe == recipe_without_paths(plan.recipe):
        return None
    return keep_in_previous(folder, report.created)


def _open_folder(folder: Path, plan: Plan, store: StepStore) -> None:
    """Write lock.json and recipe.yaml before the run starts, so that `clean` keeps its steps from the first moment.

    The recipe and the steps of an earlier report remain with it until the new one replaces it.
    """
    has_report = (folder / REPORT_FILE).is_file()
    write_lock(folder, plan.steps, has_report=has_report)
    if not has_report:
        _write_recipe(folder, plan, store)


def _finish(folder: Path, plan: Plan, store: StepStore, outcome: Outcome) -> Report | None:
    """Copy the report and the winners into the run's folder, when the run came that far."""
    if "report" not in outcome.records:
        if not (folder / REPORT_FILE).is_file():
            _write_recipe(folder, plan, store)
        return None
    reported, packaged = (store.folder(name, plan.step(name).fingerprint) for name in ("report", "package"))
    with replacing(folder):
        for file in sorted(reported.iterdir()):
            if file.name.startswith("report.") or file.name in BESIDE_REPORT:
                atomic_write(folder / file.name, file.read_text(encoding="utf-8"))
        for name in BESIDE_REPORT:
            if not (reported / name).is_file():
                (folder / name).unlink(missing_ok=True)  # that of an earlier report
        copy_winners(packaged, folder)
        _write_recipe(folder, plan, store)
        write_lock(folder, plan.steps)
    return read_report(reported)


def _write_recipe(folder: Path, plan: Plan, store: StepStore) -> None:
    """Write the recipe, after comments with the values that trainings gave to settings left to `auto`."""
    folders = {model.name: store.folder(model.step, plan.step(model.step).fingerprint) for model in plan.models}
    lines = [f"#   {name}: {text}\n" for name, text in describe_auto(plan, folders).items()]
    comment = "".join(["# Settings left to auto were:\n", *lines]) if lines else ""
    atomic_write(folder / "recipe.yaml", comment + dump_recipe(plan.recipe))
