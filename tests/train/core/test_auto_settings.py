"""The values of settings that a recipe leaves to `auto`."""

import math

import pytest

from compress.recipe.distill_schema import Distill, QuantizationAware, Recover
from compress.recipe.training_schema import AUTO, EpochBounds, Finetune, Training
from compress.tasks import KINDS
from compress.train.core.auto_settings import RULES, TrainingFacts, describe_chosen, resolve_auto, rules_for, uses_rules

FACTS = TrainingFacts(rows=2000, problem="single_label_classification", hidden=384)
MADE = [Training(), Finetune(), Distill(), Recover()]


@pytest.mark.parametrize("settings", MADE)
@pytest.mark.parametrize("rows", [1, 99, 5_000, 10**6])
@pytest.mark.parametrize("hidden", [0, 128, 768, 4096])
def test_every_training_gets_values(settings, rows, hidden):
    facts = TrainingFacts(rows=rows, problem="regression", hidden=hidden)
    resolved, chosen = resolve_auto(settings, facts)
    assert AUTO not in (resolved.epochs, resolved.batch_size, resolved.learning_rate)
    assert resolved.epochs.least <= resolved.epochs.most
    assert type(settings).model_validate(resolved.model_dump()) == resolved
    assert chosen.keys() == {"learning_rate", "batch_size"}
    assert resolve_auto(resolved, facts) == (resolved, {})


def test_explicit_values_win():
    given = Distill(epochs=2, batch_size=7, learning_rate=0.1, patience=9)
    assert resolve_auto(given, FACTS) == (given, {})
    assert resolve_auto(Finetune(epochs={"least": 1, "most": 2}, patience=9), FACTS)[0].patience == 9


def test_larger_models_have_lower_rates_and_distillation_higher_ones():
    def rate(settings, hidden):
        facts = TrainingFacts(rows=2000, problem="regression", hidden=hidden)
        return resolve_auto(settings, facts)[0].learning_rate

    rates = [rate(Finetune(), hidden) for hidden in (128, 384, 512, 768, 1024)]
    assert rates == sorted(rates, reverse=True)
    assert rate(Finetune(), 384) <= rate(Distill(), 384)


def test_bounds_of_epochs_hold_the_least_updates():
    bounds = resolve_auto(Finetune(), FACTS)[0].epochs
    rules = RULES["finetune single_label_classification"]
    assert bounds.least * math.ceil(2000 / 16) == pytest.approx(rules.least_updates, rel=0.05)
    accumulated = resolve_auto(Finetune(accumulate=2), FACTS)[0].epochs
    assert accumulated.least == pytest.approx(2 * bounds.least)
    few = TrainingFacts(rows=10, problem="regression")
    assert resolve_auto(Finetune(), few)[0].epochs == EpochBounds(least=10, most=10)


def test_rows_of_many_examples_have_smaller_batches():
    facts = TrainingFacts(rows=2000, problem="ranking", examples_per_row=30.0)
    resolved, chosen = resolve_auto(Finetune(), facts)
    assert resolved.batch_size == 8
    assert chosen["batch_size"].reason == "2,000 rows of 30.0 examples"


@pytest.mark.parametrize(
    ("settings", "has_select"),
    [
        (Distill(), False),
        (Distill(phases=[{"share": 1.0, "soft_label": 1.0}]), True),
        (Distill(losses={"soft_label": {"weight": {"start": 1.0, "end": 0.0}}}), True),
    ],
)
def test_epochs_are_a_number_where_nothing_can_decide_them(settings, has_select):
    facts = TrainingFacts(rows=2000, problem="regression", has_select=has_select)
    resolved, chosen = resolve_auto(settings, facts)
    assert resolved.epochs == chosen["epochs"].value == RULES["distill"].most_epochs[0][1] / 2
    assert resolved.patience is None


def test_values_are_described_with_their_reasons():
    text = describe_chosen(resolve_auto(Distill(), FACTS)[1])
    rate = dict(RULES["distill"].rates)[384]
    assert text == f"learning_rate {rate:g} (hidden size 384), batch_size 32 (2,000 rows)"


def test_rules_of_a_problem_come_before_those_of_the_purpose():
    problems = {kind.problem for kind in KINDS.values()}
    assert {problem for name in RULES for problem in name.split()[1:]} <= problems | {"bilstm"}
    assert rules_for(Finetune(), "retrieval") is RULES["finetune retrieval"]
    assert rules_for(Recover(), "regression") is RULES["recover"]
    assert rules_for(QuantizationAware(), "regression") is RULES["quantization-aware"]


@pytest.mark.parametrize("problem", sorted({kind.problem for kind in KINDS.values()}))
def test_recovery_follows_the_rules_of_distillation(problem):
    assert rules_for(Recover(), problem) == rules_for(Distill(), problem)


def test_only_settings_that_are_auto_depend_on_the_rules():
    fixed = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-4}
    assert not uses_rules(Finetune(**fixed))
    assert all(uses_rules(Finetune(**{**fixed, key: AUTO})) for key in fixed)
    bounds = {**fixed, "epochs": {"least": 1, "most": 2}}
    assert uses_rules(Finetune(**bounds))
    assert not uses_rules(Finetune(**bounds, patience=1))
