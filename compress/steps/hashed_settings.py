"""The settings that enter a step's fingerprint: those that change its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from compress.recipe.training_schema import Training
from compress.train.core.auto_settings import RULES_VERSION, uses_rules

NO_EFFECT = frozenset({"checkpoint", "cache"})
"""Settings that change how a step runs but not its result."""

ADDED_TO_TRAININGS: Mapping[str, Any] = {
    "minutes": None,
    "unfreeze": None,
    "method": "full",
    "features": None,
    "head": "linear",
    "seeds": 1,
    "grid": None,
}
"""Settings of trainings that earlier versions did not have, and the value with which they train as those did."""


def hashed_settings(settings: BaseModel) -> dict[str, Any]:
    """Return the settings that change a result, as plain values."""
    return without_effectless(settings.model_dump(mode="json"))


def hashed_training(settings: Training) -> dict[str, Any]:
    """Return the settings of a training that change its result, and the version of the rules where one is `auto`."""
    added = ADDED_TO_TRAININGS.items()
    hashed = {key: value for key, value in hashed_settings(settings).items() if (key, value) not in added}
    uses = any(uses_rules(point) for point in settings.points())
    return hashed | ({"rules": RULES_VERSION} if uses else {})


def without_effectless(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` without the keys of `NO_EFFECT`, at every depth."""
    return {
        key: without_effectless(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if key not in NO_EFFECT
    }
