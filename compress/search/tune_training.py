"""What cannot be enumerated of the finalists' training: Optuna samples settings, trials of one finalist judge them.

Learning rate, temperature and the weights of losses (`--tune N`, extra `search`). Each trial distils the part on the
rows of train that the shared training saw, and is scored on those held out of it. What was tried is in the folder of
the search, so that a killed search goes on and a second one has nothing to do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.console import Console
from compress.environment import require
from compress.errors import ModelError, pluralize
from compress.losses import LOSSES, LayerLoss
from compress.model_shapes import shape_of_folder
from compress.pipeline.graph import Plan
from compress.pipeline.run import Options, Phase, execute
from compress.pipeline.step_store import StepStore
from compress.recipe.distill_schema import Distill
from compress.recipe.loss_schema import Ramp
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import Part
from compress.recipe.training_schema import AUTO, number
from compress.search.candidates import more_is_better, shown_score
from compress.search.compare_candidates import plan_comparison
from compress.steps.distillations import hashed_distillation, unlabelled_inputs, unlabelled_steps
from compress.steps.model_step import PlannedModel
from compress.steps.shared_step import SECTION, add_part_pieces, hashed_part
from compress.tasks import KINDS, primary_metric
from compress.train.core.auto_settings import TrainingFacts, resolve_auto

if TYPE_CHECKING:
    from compress.pipeline.step_context import StepContext

TRIAL, TRIALS, SCORE_FILE = "trial", "trying settings of a training", "score.json"
"""The step of one trial, its kind, as a run shows it, and what it writes."""
FAILED = "reason"
"""The attribute of a trial that failed."""
JOURNAL_FILE = "tuning.log"
"""In the folder of a search: every trial with its settings and score, as Optuna's JournalStorage keeps them."""
AROUND = 4.0
"""The learning rate and the weights of layer losses are sampled between their usual value over this and times this."""
TEMPERATURES = (1.0, 10.0)
RANDOM_TRIALS = 4
"""Before the sampler has a model of what is good; the usual settings are the first of them."""

Values = dict[str, float]
"""Settings by name: `learning_rate`, `temperature`, `hard_label`, and weights of losses."""


@dataclass(frozen=True)
class Setting:
    """A setting that is sampled."""

    usual: float
    low: float
    high: float
    log: bool = True


def sampled_settings(recipe: Recipe, rate: float) -> dict[str, Setting]:
    """Return what is sampled: settings that the recipe leaves to their defaults and that have an effect.

    ``rate``: the usual learning rate.
    """
    settings = recipe.distill
    assert settings
    found = dict[str, Setting]()
    if settings.learning_rate == AUTO:
        found["learning_rate"] = Setting(rate, rate / AROUND, rate * AROUND)
    if settings.phases:
        return found
    given, chosen = settings.model_fields_set, settings.losses.chosen()
    softened = (soft := settings.losses.soft_label) and soft.form != "mse" and soft.temperature is None
    if softened and "temperature" not in given and KINDS[recipe.task.kind].outputs.distribution:
        found["temperature"] = Setting(settings.temperature, *TEMPERATURES)
    if "hard_label" not in given:
        found["hard_label"] = Setting(settings.hard_label, 0.0, 1.0, log=False)
    for name, loss in chosen.items() if "losses" not in given else ():
        if isinstance(LOSSES[name], LayerLoss) and not isinstance(loss.weight, Ramp):
            found[name] = Setting(loss.weight, loss.weight / AROUND, loss.weight * AROUND)
    return found


def with_settings(settings: Distill, values: Values) -> Distill:
    """Return a distillation with settings of a trial."""
    chosen = settings.losses.chosen()
    weights = {
        name: loss.model_copy(update={"weight": values[name]}) for name, loss in chosen.items() if name in values
    }
    changes: dict[str, Any] = {name: value for name, value in values.items() if name not in weights}
    if weights:
        changes["losses"] = settings.losses.model_copy(update=weights)
    return settings.model_copy(update=changes)


def tuned_recipe(recipe: Recipe, values: Values) -> Recipe:
    """Return a search's recipe whose finalists have these settings; the shared training keeps those that it had."""
    settings, shared = recipe.distill, recipe.shared
    assert settings
    taken = [name for name in ("temperature", "hard_label") if getattr(shared, name) is None]
    own: dict[str, Any] = {name: getattr(settings, name) for name in taken if name in values}
    changes = dict[str, Any]()
    changes["distill"] = with_settings(settings, values)
    changes["shared"] = shared.model_copy(update=own)
    return recipe.model_copy(update=changes)


def tune(
    recipe: Recipe, part: Part, count: int, options: Options, console: Console, until: float | None = None
) -> Values:
    """Return the settings with the best score of so many trials, the usual ones first; empty where these are the best.

    Args:
        recipe: of the search, whose parts were compared.
        part: the finalist that is trained.
        count: of all trials, those of an earlier search with the same recipe and part too.
        options: of the search, with its folder.
        console: shows each trial.
        until: the time after which none begins.
    """
    settings = sampled_settings(recipe, _usual_rate(recipe, options))
    if not settings:
        console.note("search: nothing to tune, as the recipe gives what would be sampled")
        return {}
    study = _Study(recipe, part, settings, options)
    while (done := study.done) < count:
        if until is not None and time.monotonic() > until:
            console.note(f"search: {done} of {pluralize(count, 'trial')}, as --minutes allows")
            break
        study.try_next(f"search, trial {done + 1} of {count}", console)
    best = study.best()
    if best is None:
        console.warn("no trial of settings could be scored; finalists have the usual ones.")
        return {}
    score, values = best
    shown = ", ".join(f"{name} {value:g}" for name, value in values.items())
    if values == study.usual:
        console.note(f"search: the usual settings are the best of {pluralize(study.done, 'trial')} ({shown})")
        return {}
    usual = study.score_of(study.usual)
    larger = primary_metric(recipe.task).larger_is_better
    instead = "" if usual is None else f", with the usual settings {shown_score(usual, larger)}"
    console.note(f"search: {shown_score(score, larger)} on held-out rows{instead}: {shown}")
    return values


class _Study:
    """The trials of one part, in a journal beside the search's other files."""

    def __init__(self, recipe: Recipe, part: Part, settings: Mapping[str, Setting], options: Options) -> None:
        self._recipe, self._part, self._options = recipe, part, options
        self._optuna = optuna = require("optuna", "search")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.usual = _rounded({name: each.usual for name, each in settings.items()})
        """The usual settings."""
        assert options.folder
        options.folder.mkdir(parents=True, exist_ok=True)
        turned = "" if primary_metric(recipe.task).larger_is_better else "-turned"
        name = self._plan(self.usual).step(TRIAL).fingerprint + turned
        self._study = open_study(optuna, options.folder / JOURNAL_FILE, name)
        distribution = optuna.distributions.FloatDistribution
        self._space = {name: distribution(each.low, each.high, log=each.log) for name, each in settings.items()}
        self._study.enqueue_trial(self.usual, skip_if_exists=True)
        for trial in self._study.get_trials(states=[optuna.trial.TrialState.RUNNING]):  # its search was killed
            self._study.enqueue_trial(trial.params)
            self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)

    @property
    def done(self) -> int:
        """How many trials are scored, or failed."""
        complete = self._optuna.trial.TrialState.COMPLETE
        return sum(each.state == complete or FAILED in each.user_attrs for each in self._study.trials)

    def score_of(self, values: Values) -> float | None:
        """Return the score of settings; None where they have none."""
        scored = (each for each in self._study.trials if each.value is not None and _rounded(each.params) == values)
        return next((float(each.value) for each in scored), None)

    def try_next(self, title: str, console: Console) -> None:
        """Ask for settings, train with them, and store the score."""
        # By what is done alone: a search that was killed, or is given more trials, draws what it would have drawn.
        self._study.sampler = sampler(self._optuna, self._recipe.seed, self.done)
        trial = self._study.ask(self._space)
        plan = self._plan(_rounded(trial.params))
        options = replace(self._options, until=TRIAL, phase=Phase(title, plan))
        outcome = execute(plan, options, console).outcome
        if (record := outcome.records.get(TRIAL)) is not None:
            score = read_score(StepStore(options.root).folder_of(record))
            self._study.tell(trial, more_is_better(score, self._recipe.task))
        else:
            trial.set_user_attr(FAILED, outcome.failures.get(TRIAL, "a step before it failed"))
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def best(self) -> tuple[float, Values] | None:
        """Return the best score and its settings; None where nothing could be scored."""
        scored = self._study.get_trials(states=[self._optuna.trial.TrialState.COMPLETE])
        if not scored:
            return None
        best = max(scored, key=lambda each: float(each.value))  # of equals the first
        return float(best.value), _rounded(best.params)

    def _plan(self, values: Values) -> Plan:
        trial = partial(add_trial, part=self._part, values=values)
        return plan_comparison(self._recipe, self._options, [trial])


def sampler(optuna: ModuleType, seed: int, done: int) -> Any:
    """Return what chooses settings after so many trials: at random at first, then near those of the best."""
    mixed = int(np.random.SeedSequence([seed, done]).generate_state(1)[0])
    return optuna.samplers.TPESampler(seed=mixed, n_startup_trials=RANDOM_TRIALS)


def open_study(optuna: ModuleType, file: Path, name: str) -> Any:
    """Return the study of this name in a journal, made anew unless it is there; `ModelError` where it is unreadable."""
    journal = optuna.storages.journal.JournalFileBackend
    try:
        return optuna.create_study(
            study_name=name,
            storage=optuna.storages.JournalStorage(journal(str(file))),
            direction="maximize",
            load_if_exists=True,
        )
    except (OSError, ValueError, KeyError, AssertionError) as error:  # what a broken line of it may raise
        raise ModelError(f"{file} cannot be read as Optuna's journal.", hint="remove it: trials begin anew") from error


def add_trial(plan: Plan, cards: Sequence[Path] = (), *, part: Part, values: Values, name: str = TRIAL) -> None:
    """The step that distils a part with these settings, and scores it."""
    recipe = plan.recipe
    assert recipe.distill
    settings = with_settings(recipe.distill, values)
    whole = add_part_pieces(plan, part)
    hashed: dict[str, Any] = {"shape": hashed_part(part), "training": hashed_distillation(settings)}
    hashed |= {"seed": recipe.seed, "metric": recipe.task.metric}
    needs = ["data", plan.teacher.step, whole, *unlabelled_steps(plan)]
    bound: dict[str, Any] = {"part": part, "settings": settings, "seed": recipe.seed}
    run = partial(score_settings, teacher=plan.teacher.step, shared=whole, **bound)
    plan.add(name, TRIALS, hashed, needs, run, trains=True, optional=True)
    plan.models.append(PlannedModel(name, name, whole, SECTION, settings, part, evaluated=False))


def score_settings(context: StepContext, teacher: str, shared: str, part: Part, settings: Distill, seed: int) -> None:
    """Write what a part scores that is distilled with these settings."""
    from compress.train.shared_student import try_part

    folders = context.inputs[teacher], context.inputs[shared]
    options: dict[str, Any] = {"console": context.console, "unlabelled_rows": unlabelled_inputs(context)}
    score = try_part(*folders, part, context.inputs["data"], settings, seed, context.work, **options)
    context.write_json(SCORE_FILE, {"score": score})


def read_score(folder: Path) -> float:
    """Return the score of a trial."""
    return float(json.loads((folder / SCORE_FILE).read_bytes())["score"])


def _usual_rate(recipe: Recipe, options: Options) -> float:
    """Return the learning rate of the finalists where the recipe leaves it to `auto`."""
    plan, store = plan_comparison(recipe, options), StepStore(options.root)
    shared = shape_of_folder(store.folder(SECTION, plan.step(SECTION).fingerprint))
    assert recipe.distill
    facts = TrainingFacts(rows=1, problem=KINDS[recipe.task.kind].problem, hidden=shared.hidden if shared else 0)
    return number(resolve_auto(recipe.distill, facts)[0].learning_rate)


def _rounded(values: Mapping[str, float]) -> Values:
    """Return settings with three digits, as a recipe is to show them."""
    return {name: float(f"{value:.3g}") for name, value in values.items()}
