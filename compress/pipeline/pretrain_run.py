"""`compress pretrain` as a function: a recipe in, a model folder with its cards and report out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.console import Console
from compress.pipeline.execute import Executor
from compress.pipeline.planning.pretrain_plan import PretrainPlan, make_pretrain_plan
from compress.pipeline.preflight.allowed_names import NAMES
from compress.pipeline.run_lock import write_lock
from compress.pipeline.run_output import LOG_FILE
from compress.pipeline.step_store import RECORD_FILE, StepStore, share_folder
from compress.pipeline.steps.pretrain_steps import PRETRAIN, REPORT
from compress.pipeline.torchrun_launch import Launch, leave_group
from compress.recipe.load import dump_recipe, load_as, parse_as
from compress.recipe.pretrain_schema import PretrainRecipe
from compress.recipe.yaml_lines import dump_yaml
from compress.storage.atomic_write import atomic_write, new_folder

if TYPE_CHECKING:
    from compress.pretrain.report.pretrain_report import PretrainReport

MODEL_FOLDER = "model"


@dataclass(frozen=True)
class PretrainOptions:
    """How a pretraining recipe is run; none of it changes the result."""

    runs: Path = Path("runs")
    cards: tuple[Path, ...] = ()
    force: bool = False


def read_pretrain_recipe(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> PretrainRecipe:
    """Read a pretraining recipe from a file or a mapping."""
    if isinstance(source, Mapping):
        return parse_as(PretrainRecipe, dump_yaml(dict(source)), "recipe", overrides, NAMES)
    return load_as(PretrainRecipe, Path(source), overrides, NAMES)


def run_pretrain(
    source: str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    options: PretrainOptions | None = None,
    console: Console | None = None,
) -> PretrainReport | None:
    """Run a pretraining recipe into its run folder; None on processes that only help to train."""
    options, launch = options or PretrainOptions(), Launch.from_environment()
    shown = (console or Console("quiet")) if launch.is_main else Console("quiet", err=StringIO())
    plan = make_pretrain_plan(read_pretrain_recipe(source, overrides), options.cards)
    try:
        return _execute(plan, options, shown, launch)
    finally:
        leave_group()


def _execute(plan: PretrainPlan, options: PretrainOptions, console: Console, launch: Launch) -> PretrainReport | None:
    store, folder = StepStore(options.runs), options.runs / plan.recipe.name
    executor = Executor(plan, store, console, folder / "events.jsonl", launch, folder / LOG_FILE)
    forced = {step.name for step in plan.steps} if options.force else set[str]()
    if not launch.is_main:
        executor.run(forced)
        return None
    with store.hold(f"run-{plan.recipe.name}", console):
        write_lock(folder, plan.steps)
        atomic_write(folder / "recipe.yaml", dump_recipe(plan.recipe))
        executor.run(forced)
        return _finish(plan, store, folder)


def _finish(plan: PretrainPlan, store: StepStore, folder: Path) -> PretrainReport:
    """Copy the model, its cards and its report into the run's folder."""
    from compress.pretrain.report.pretrain_report import REPORT_JSON, PretrainReport

    made, reported = (store.folder(name, plan.step(name).fingerprint) for name in (PRETRAIN, REPORT))
    with new_folder(folder / MODEL_FOLDER) as work:
        share_folder(made, work)
        (work / RECORD_FILE).unlink()
    for path in sorted(reported.rglob("*")):
        if path.is_file() and path.name != RECORD_FILE:
            atomic_write(folder / path.relative_to(reported), path.read_bytes())
    return PretrainReport.model_validate_json((reported / REPORT_JSON).read_bytes())
