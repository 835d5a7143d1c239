"""Trials of the finalists' training: what is sampled, what stays as it is, what a killed or second search does."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from compress.cli import main
from compress.console import Console
from compress.errors import ModelError
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import Options, read_recipe
from compress.pipeline.step_store import StepStore
from compress.recipe.load import dump_recipe, parse_recipe
from compress.recipe.student_schema import Part
from compress.search import tune_training
from compress.search.search_folder import read_search
from compress.search.tune_training import (
    JOURNAL_FILE,
    TRIAL,
    Setting,
    open_study,
    sampled_settings,
    tune,
    tuned_recipe,
    with_settings,
)
from compress.steps.distillations import hashed_distillation
from compress.steps.shared_step import shared_training
from tests.conftest import write_tiny_recipe

RATE = 2e-4
VALUES = {"learning_rate": 3e-4, "temperature": 2.0, "hard_label": 0.1, "attention": 0.5}


def recipe_with(recipe_file: Path, *overrides: str):
    return resolve(read_recipe(recipe_file, ["prune=null", "publish=null", "distill=null", *overrides]))


@pytest.mark.parametrize(
    ("overrides", "sampled"),
    [
        ([], {"learning_rate", "temperature", "hard_label", "hidden_state", "attention"}),
        (["distill={learning_rate: 1e-4, temperature: 4.0}"], {"hard_label", "hidden_state", "attention"}),
        (["distill={soft_label: 1.0}"], {"learning_rate", "temperature", "hard_label"}),
        (["distill={soft_label: {form: mse}}"], {"learning_rate", "hard_label"}),
        (["distill={phases: [{share: 1.0, soft_label: 1.0}]}"], {"learning_rate"}),
    ],
)
def test_what_the_recipe_gives_is_not_sampled(overrides, sampled, recipe_file):
    assert {*sampled_settings(recipe_with(recipe_file, *overrides), RATE)} == sampled


def test_the_usual_setting_is_between_the_bounds(recipe_file):
    settings = sampled_settings(recipe_with(recipe_file), RATE)
    assert settings["learning_rate"] == Setting(RATE, RATE / 4, RATE * 4)
    assert all(each.low <= each.usual <= each.high for each in settings.values())


def test_settings_of_a_trial_are_those_of_a_recipe(recipe_file):
    recipe = recipe_with(recipe_file)
    tuned = tuned_recipe(recipe, VALUES)
    assert tuned.distill == with_settings(recipe.distill, VALUES)
    assert (tuned.distill.learning_rate, tuned.distill.losses.attention.weight) == (3e-4, 0.5)
    assert tuned.distill.losses.hidden_state == recipe.distill.losses.hidden_state
    read = parse_recipe(dump_recipe(tuned), "tuned", (), {})
    assert hashed_distillation(read.distill) == hashed_distillation(tuned.distill)


@pytest.mark.parametrize("given", [(), ("shared={temperature: 3, hard_label: 0.3}",), ("shared={temperature: 3}",)])
def test_the_shared_training_keeps_its_settings(given, recipe_file):
    recipe = recipe_with(recipe_file, *given)
    tuned = tuned_recipe(recipe, VALUES)
    before, after = (hashed_distillation(shared_training(each.distill, each.shared)) for each in (recipe, tuned))
    assert before == after
    assert hashed_distillation(recipe.distill) != hashed_distillation(tuned.distill)


def test_the_shared_training_has_no_restarts_to_choose_from(recipe_file):
    recipe = recipe_with(recipe_file, "distill={restarts: 3}")
    assert recipe.distill.restarts == 3
    assert shared_training(recipe.distill, recipe.shared).restarts == 1


def test_without_the_extra_nothing_runs(recipe_file, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    options = ["--budget", "size=5MB", "--tune", "2", "--runs", str(recipe_file.parent / "runs")]
    assert main(["search", str(recipe_file), *options]) == 1
    assert "compress-encoders[search]" in capsys.readouterr().err
    assert not (recipe_file.parent / "runs").exists()


@pytest.mark.parametrize("text", ["no journal\n", '{"key": 1}\n', '{"op_code": 0, "work'])
def test_a_journal_that_cannot_be_read_is_one_message(text, tmp_path):
    optuna = pytest.importorskip("optuna", reason="Optuna is not installed (the extra `search`)")
    (tmp_path / JOURNAL_FILE).write_text(text)
    with pytest.raises(ModelError, match="cannot be read as Optuna's journal"):
        open_study(optuna, tmp_path / JOURNAL_FILE, "study")


def test_a_search_that_is_given_more_trials_draws_what_it_would_have_drawn(recipe_file, tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason="Optuna is not installed (the extra `search`)")
    tried: list[dict[str, float]] = []

    def execute(plan, options, console):
        tried.append(plan.values)
        record = SimpleNamespace(values=plan.values)
        return SimpleNamespace(outcome=SimpleNamespace(records={TRIAL: record}))

    def plan_of(recipe, options, planners):
        return SimpleNamespace(
            values=planners[0].keywords["values"], step=lambda name: SimpleNamespace(fingerprint="f")
        )

    monkeypatch.setattr(tune_training, "_usual_rate", lambda *_: RATE)
    monkeypatch.setattr(tune_training, "plan_comparison", plan_of)
    monkeypatch.setattr(tune_training, "Phase", lambda *_: None)
    monkeypatch.setattr(tune_training, "execute", execute)
    monkeypatch.setattr(StepStore, "folder_of", lambda self, record: record)
    monkeypatch.setattr(tune_training, "read_score", lambda record: record.values["temperature"])

    def best(folder, *counts):
        tried.clear()
        options = Options(runs=tmp_path / "runs", folder=folder)
        (*_, found) = (
            tune(recipe, Part(layers=1, heads=1, ffn=1), count, options, Console("quiet")) for count in counts
        )
        return found, [*tried]

    recipe = recipe_with(recipe_file)
    found, values = best(tmp_path / "one", 7)
    assert best(tmp_path / "two", 2, 3, 7) == (found, values)
    assert len({str(each) for each in values}) == 7
    assert found["temperature"] == max(each["temperature"] for each in values)
    errors = recipe.task.model_copy(update={"kind": "regression", "metric": "mse"})
    recipe = recipe.model_copy(update={"task": errors})
    monkeypatch.setattr(tune_training, "read_score", lambda record: record.values["hard_label"])
    found, values = best(tmp_path / "three", 5)
    assert found.get("hard_label", 0.0) == min(each["hard_label"] for each in values)


@pytest.mark.slow
def test_a_search_tries_settings_and_goes_on_where_it_was_killed(tmp_path: Path, monkeypatch, capsys) -> None:
    optuna = pytest.importorskip("optuna", reason="Optuna is not installed (the extra `search`)")
    monkeypatch.chdir(tmp_path)
    command = ["search", str(write_tiny_recipe(tmp_path)), "--budget", "size=5MB,drop=1", "--finalists", "1"]
    command += ["--set", "student=null", "--set", "publish=null", "--set", "shared={epochs: 2, batch_size: 16}"]
    command += ["--set", "quantize={methods: [dynamic]}", "--set", "distill={epochs: 2, batch_size: 16}"]

    def trials():
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "searches/tiny" / JOURNAL_FILE))
        (study,) = optuna.get_all_study_summaries(optuna.storages.JournalStorage(backend))
        return optuna.load_study(study_name=study.study_name, storage=optuna.storages.JournalStorage(backend)).trials

    assert main([*command, "--tune", "3", "--dry-run", "--format", "json"]) == 0
    assert '"trial-3"' in capsys.readouterr().out
    with monkeypatch.context() as patched:
        patched.setattr("compress.search.tune_training.score_settings", _interrupt)
        assert main([*command, "--tune", "2"]) == 130
    (killed,) = trials()
    assert main([*command, "--tune", "2"]) == 0
    states = [each.state.name for each in trials()]
    assert sorted(states) == ["COMPLETE", "COMPLETE", "FAIL"]
    assert trials()[1].params == killed.params
    found = read_search(tmp_path / "searches" / "tiny")
    steps = {path.name for path in (tmp_path / "runs" / ".steps").iterdir()}
    assert main([*command, "--tune", "2"]) == 0
    assert {path.name for path in (tmp_path / "runs" / ".steps").iterdir()} == steps
    assert read_search(tmp_path / "searches" / "tiny") == found
    best = max((each for each in trials() if each.value is not None), key=lambda each: each.value)
    usual = best.number == 1
    assert found.tuned == ({} if usual else pytest.approx(best.params, rel=0.01))


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
