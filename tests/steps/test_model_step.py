"""Which settings enter fingerprints."""

import pytest

from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Checkpoints, Finetune
from compress.steps.model_step import hashed_settings, hashed_training


def test_checkpoint_intervals_do_not_change_the_fingerprint() -> None:
    assert hashed_settings(Finetune()) == hashed_settings(Finetune(checkpoint=Checkpoints(minutes=1, steps=7)))
    assert hashed_settings(Distill()) != hashed_settings(Distill(temperature=2.0))


def test_rules_change_the_fingerprint_of_settings_that_are_auto_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    given, auto = Finetune(epochs=3, batch_size=32, learning_rate=5e-5), Finetune(epochs=3)
    before = hashed_training(given), hashed_training(auto)
    monkeypatch.setattr("compress.steps.model_step.RULES_VERSION", -1)
    assert hashed_training(given) == before[0]
    assert hashed_training(auto) != before[1]


def test_ways_of_training_that_are_not_used_have_the_fingerprint_of_earlier_versions() -> None:
    assert not {"method", "seeds", "grid"} & set(hashed_training(Finetune()))
    paper = hashed_training(Finetune.model_validate({"grid": "paper"}))
    assert paper["grid"]["epochs"] == [2.0, 3.0, 4.0]
    assert "rules" not in paper
    assert "rules" in hashed_training(Finetune(grid={"epochs": [2, 3]}))


def test_settings_without_a_time_limit_have_the_fingerprint_of_earlier_versions() -> None:
    assert "minutes" not in hashed_training(Finetune())
    assert hashed_training(Finetune(minutes=3))["minutes"] == 3
