"""`compress pretrain` as a function: a recipe in, a model folder with its cards and report out.

Its plan has the steps vocabulary, corpus, packing, training and report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.console import Console
from compress.errors import UsageError, nearest_file
from compress.model_sources import identity
from compress.pipeline.execute import Executor
from compress.pipeline.graph import Step, StepPlan
from compress.pipeline.preflight.recipe_checks import NAMES
from compress.pipeline.run_lock import write_lock
from compress.pipeline.run_output import LOG_FILE
from compress.pipeline.step_store import StepStore, share_folder
from compress.pipeline.steps import pretrain_steps as steps
from compress.pipeline.steps.pretrain_steps import PRETRAIN, REPORT
from compress.pipeline.torchrun_launch import Launch, leave_group
from compress.pretrain.encoder_limits import check_length, check_pairs
from compress.pretrain.pretrain_schema import PretrainRecipe, Start, Text
from compress.recipe.load import dump_recipe, load_as, parse_as
from compress.recipe.yaml_lines import dump_yaml
from compress.steps.model_configs import config_of
from compress.steps.model_step import hashed_settings
from compress.storage.atomic_write import atomic_write, new_folder
from compress.storage.file_digests import file_digest
from compress.storage.file_names import RECORD_FILE

if TYPE_CHECKING:
    from compress.pretrain.pretrain_report import PretrainReport


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
    from compress.pretrain.pretrain_report import REPORT_JSON, PretrainReport

    made, reported = (store.folder(name, plan.step(name).fingerprint) for name in (PRETRAIN, REPORT))
    with new_folder(folder / MODEL_FOLDER) as work:
        share_folder(made, work)
        (work / RECORD_FILE).unlink()
    for path in sorted(reported.rglob("*")):
        if path.is_file() and path.name != RECORD_FILE:
            atomic_write(folder / path.relative_to(reported), path.read_bytes())
    return PretrainReport.model_validate_json((reported / REPORT_JSON).read_bytes())


@dataclass
class PretrainPlan(StepPlan):
    """The steps of a pretraining recipe."""

    recipe: PretrainRecipe
    steps: list[Step] = field(default_factory=list)

    @property
    def track(self) -> str | None:
        """The experiment tracker of trainings."""
        return self.recipe.track


def make_pretrain_plan(recipe: PretrainRecipe, cards: Sequence[Path] = ()) -> PretrainPlan:
    """Lay out the steps of a pretraining; nothing runs, nothing heavy is loaded."""
    _check_start(recipe, cards)
    plan, seed = PretrainPlan(recipe), recipe.seed
    text = {"text": _text_identity(recipe.text), "seed": seed}
    start = {"start": _model_identity(recipe.start, cards)}
    bound: dict[str, Any] = {"recipe": recipe, "cards": tuple(cards)}
    vocabulary = list[str]()
    if recipe.vocabulary is not None:
        settings = {**text, **start, "vocabulary": hashed_settings(recipe.vocabulary)}
        vocabulary = [
            plan.add(steps.VOCABULARY, "pretrain-vocabulary", settings, [], partial(steps.vocabulary, **bound))
        ]
    cut = {**text, **start}
    if recipe.start is None and recipe.vocabulary is None and recipe.distill is not None:  # by the teacher's tokenizer
        cut["tokenizer"] = _model_identity(recipe.distill.teacher, cards)
    plan.add(steps.CORPUS, "pretrain-corpus", cut, vocabulary, partial(steps.corpus, **bound))
    packed = {"lengths": steps.packed_lengths(recipe), "pairs": recipe.next_sentence, "seed": seed}
    plan.add(steps.PACKING, "pretrain-packing", packed, [steps.CORPUS], partial(steps.packing, **bound))
    needs = [*vocabulary, steps.CORPUS, steps.PACKING]
    plan.add(
        steps.PRETRAIN,
        "pretrain",
        {**_training_settings(recipe, cards), **start, "seed": seed},
        needs,
        partial(steps.pretrain, **bound),
        trains=True,
    )
    named = {"name": recipe.name, "start": recipe.start and recipe.start.source}
    plan.add(steps.REPORT, "pretrain-report", named, [*needs, steps.PRETRAIN], partial(steps.report, **bound))
    return plan


def _check_start(recipe: PretrainRecipe, cards: Sequence[Path]) -> None:
    """Refuse, before any text is read, what the encoder that it begins with cannot do, where that is here."""
    start = recipe.start or (recipe.distill.teacher if recipe.distill else None)
    if start is None:
        return
    config = config_of(start.source, start.revision, cards)
    check_length(config, recipe.train.length, start.source)
    if recipe.next_sentence:
        check_pairs(config, start.source)


def _training_settings(recipe: PretrainRecipe, cards: Sequence[Path]) -> dict[str, Any]:
    """The settings that change what is trained."""
    sections = {"shape", "masked_lm", "next_sentence", "replaced_tokens", "train"}
    chosen = {key: value for key, value in hashed_settings(recipe).items() if key in sections}
    if recipe.distill is not None:
        chosen["distill"] = hashed_settings(recipe.distill) | {
            "teacher": _model_identity(recipe.distill.teacher, cards)
        }
    return chosen


def _model_identity(start: Start | None, cards: Sequence[Path]) -> dict[str, Any] | None:
    return None if start is None else identity(start.source, start.revision, cards)


def _text_identity(text: Text) -> dict[str, Any]:
    """What the documents are read from: contents of files, never their paths."""
    settings = hashed_settings(text)
    if text.files:
        settings["files"] = [[*Path(file).suffixes, file_digest(_existing(Path(file)))] for file in text.files]
    return settings


def _existing(path: Path) -> Path:
    if path.is_dir():
        raise UsageError(f"text.files: {path} is a folder where a file is expected.")
    if not path.is_file():
        nearby = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise UsageError(f"text.files: there is no file {path}{nearest_file(path, nearby)}.")
    return path


def show_pretrained(report: PretrainReport, folder: Path, console: Console) -> None:
    """Show what a pretrained model predicts of held-out text, and where its model, report and cards are."""
    if console.format == "json":
        console.data(report)
        return
    if console.format == "human":
        from compress.pretrain.pretrain_report import REPORT_PAGE, tables

        for table in tables(report):
            console.table(table.rows, table.columns, f"{report.name} on held-out text, with 95 % intervals")
        console.note(f"report: {folder / REPORT_PAGE}; its cards: --cards {folder}")
    console.line(str(folder / MODEL_FOLDER))
