"""A step's fingerprint: a digest of everything that changes its result, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from compress.recipe.prune_schema import LATENCY_KEYS, Prune
from compress.recipe.student_schema import Student
from compress.recipe.training_schema import Training
from compress.train.core.auto_settings import RULES_VERSION, uses_rules

LENGTH = 16

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

VERSIONS: dict[str, int] = {
    "data": 3,
    "latency": 4,
    "finetune": 3,
    "distill": 3,
    "cut": 2,
    "recover": 2,
    "vocabulary": 2,
    "export": 2,
    "quantize": 2,
    "score": 2,
    "floor": 2,
    "measure": 3,
    "quality": 3,
    "select": 5,
    "package": 2,
    "package-format": 3,
    "report": 16,
    "pretrain-vocabulary": 2,
    "pretrain-corpus": 2,
    "pretrain-packing": 2,
    "pretrain": 2,
    "pretrain-report": 3,
}
"""By kind of step, 1 for others. Raised when a step's code changes its result, so that older results are not reused."""


def fingerprint(kind: str, settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Return the fingerprint of a step of ``kind`` with these settings and inputs of these fingerprints."""
    content = {"kind": kind, "version": VERSIONS.get(kind, 1), "settings": settings, "inputs": inputs}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:LENGTH]


def hashed_settings(settings: BaseModel) -> dict[str, Any]:
    """Return the settings that change a result, as plain values."""
    return without_effectless(settings.model_dump(mode="json"))


def hashed_training(settings: Training) -> dict[str, Any]:
    """Return the settings of a training that change its result, and the version of the rules where one is `auto`."""
    added = ADDED_TO_TRAININGS.items()
    hashed = {key: value for key, value in hashed_settings(settings).items() if (key, value) not in added}
    uses = any(uses_rules(point) for point in settings.points())
    return hashed | ({"rules": RULES_VERSION} if uses else {})


def hashed_student(settings: Student) -> dict[str, Any]:
    """Return the settings of a student that change its layers; its vocabulary has a step of its own."""
    return {key: value for key, value in hashed_settings(settings).items() if key != "vocabulary"}


def hashed_pruning(settings: Prune) -> dict[str, Any]:
    """Return the settings of a cut that change its result; keys that earlier versions did not have only where given."""
    hashed = hashed_settings(settings)
    elsewhere, later = {"recover", "vocabulary", *LATENCY_KEYS}, {"rescale": None, "cuts": 1}.items()
    return {key: value for key, value in hashed.items() if key not in elsewhere and (key, value) not in later}


def without_effectless(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` without the keys of `NO_EFFECT`, at every depth."""
    return {
        key: without_effectless(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if key not in NO_EFFECT
    }
