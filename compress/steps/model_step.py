"""What a model step is: one record, of which planning, checks, estimates, smoke runs and reports each read a part.

Of its settings, those that change its result enter its fingerprint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel

from compress.errors import Problem
from compress.model_folder.model_info import ShapeInfo
from compress.recipe.field_types import Frozen
from compress.recipe.prune_schema import Prune
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import LightStudent, Part, Shared, Student
from compress.recipe.training_schema import Training
from compress.recipe.yaml_lines import KeyPath
from compress.steps.model_configs import Check, ModelConfigs
from compress.train.core.auto_settings import RULES_VERSION, uses_rules

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan


TRAINING: Mapping[str, str] = {"torch": "train", "transformers": "train", "accelerate": "train"}
"""Libraries of every training, and the extra that contains them."""

UNTRAINED = "none: it is not trained"
"""What a report says of the losses of a model that has none."""
Settings = TypeVar("Settings", bound=Frozen)


@dataclass(frozen=True)
class PlannedModel:
    """One model of a run."""

    name: str
    """As in the ledger: `teacher`."""
    step: str
    """The step that makes it."""
    parent: str | None
    """The model it is made from; None for the teacher, with which every run begins."""
    section: str
    """The key of its record in `STEPS`."""
    training: Training | None = None
    """How it is trained; None where it is taken or cut without training."""
    shape: Student | LightStudent | Prune | Shared | Part | None = None
    """How its architecture follows from its parent's; None where it is the same."""
    evaluated: bool = True
    """Whether its variants are built and it has rows in the ledger: not one that only serves to make the next."""
    has_attention: bool = True
    """Whether it is a transformer, of which others can be made."""
    teacher: str | None = None
    """The model whose outputs it learns, where that is not the recipe's teacher."""


@dataclass(frozen=True)
class NamedModel:
    """A card, a folder or a hub id that a recipe names, with the key that names it."""

    path: KeyPath
    source: str
    revision: str | None
    kind: Literal["teachers", "students"] = "teachers"


@dataclass(frozen=True)
class Smoke:
    """How a smoke run is small."""

    root: Path
    """The folder below which tiny models are written."""
    few_updates: Callable[[Any], Any]
    """Returns the settings of a training of a few updates."""


@dataclass(frozen=True)
class StepKind:
    """One kind of step of those that make a model."""

    libraries: Mapping[str, str] = field(default_factory=lambda: TRAINING)
    """Libraries that it imports, and the extra that contains them."""
    version: int = 1
    """Raised when its code changes its result, so that older results are not reused."""
    seconds: float = 1.0
    """Usual time besides what is computed, measured on two busy cores of an AMD EPYC."""
    title: str = ""
    """Of its stage in the output of a run, where its step has several; by default the step's."""
    gradient_rows: int = 0
    """Rows over which it computes gradients, about, besides those of trainings."""


def nothing(*_: object) -> Iterator[Any]:
    """Yield nothing."""
    yield from ()


def unchanged(recipe: Recipe, *_: object) -> Recipe:
    """Return the recipe as it is."""
    return recipe


@dataclass(frozen=True)
class ModelStep:
    """How a section of a recipe makes a model of another: facts, and functions of the settings and the parent."""

    title: str
    """What a run shows meanwhile."""
    kinds: Mapping[str, StepKind]
    """Its kinds of steps in the graph."""
    in_effect: Callable[[Recipe], bool]
    plan: Callable[[Plan, Sequence[Path], str], object]
    """Adds its models and their steps to a plan. The other arguments are folders of cards and the last model before."""
    path: KeyPath = ()
    """Where its settings are in a recipe: `prune`, `vocabulary`."""
    training: KeyPath = ()
    """Where those of its training are; empty where it has none."""
    follows: KeyPath = ()
    """Where the training is that its own follows from, in a step without a section for it."""
    start: Callable[[Any, str, Path | None], str] = lambda settings, parent, folder: f"the {parent} model"
    """Describes how its model begins, of the settings of its shape, its parent's name and folder: `the student,
    pruned`."""
    shape: Callable[[Any, ShapeInfo | None, Sequence[Path]], ShapeInfo | None] = lambda settings, parent, cards: parent
    """Returns the shape that settings make of the parent's; None while it is unknown."""
    reads_unlabelled: Callable[[Recipe], bool] = lambda recipe: False
    """Whether it reads unlabelled texts."""
    named_models: Callable[[Recipe], Iterator[NamedModel]] = nothing
    """Yields the models it needs besides those of its training."""
    problems: Callable[[Recipe], Iterator[Problem]] = nothing
    """Yields settings that have no effect or exclude each other."""
    check_rows: Callable[[int], object] | None = None
    """Refuses a number of rows of train."""
    checks: Callable[[ModelConfigs], Iterator[Check]] = nothing
    """Yields checks of what the models cannot do, each with the section it is about."""
    warnings: Callable[[ModelConfigs], Iterator[str]] = nothing
    """Yields what is valid and probably unintended."""
    shrink: Callable[[Recipe, Smoke], Recipe] = unchanged
    """Makes it small for `--smoke`."""
    untimed: Callable[[Recipe], Recipe] = unchanged
    """Makes it do about as much without latencies, which `plan --calibrate` does not measure."""
    other_losses: str = UNTRAINED
    """What a report says of the losses of its models where no section of the recipe lists them."""
    tag: str = ""
    """The tag of published models that were made by it."""
    removes_pieces: bool = False
    """Whether it removes word pieces alone, which saves bytes and no time."""
    hint: str = ""
    """What helps where its model misses the gate and there are no unlabelled texts."""


def settings_at(recipe: Any, path: KeyPath) -> Any:
    """Return the value of a recipe, or of its long form, at a key path; None where a section on the way is absent."""
    for key in path:
        recipe = recipe.get(key) if isinstance(recipe, Mapping) else getattr(recipe, str(key), None)
        if not recipe:
            return None
    return recipe


def with_settings(section: Settings, path: KeyPath, value: object) -> Settings:
    """Return a recipe, or a section of one, with another value at a key path that it has."""
    key, *rest = map(str, path)
    return section.model_copy(update={key: with_settings(getattr(section, key), tuple(rest), value) if rest else value})


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
    if settings.freeze is not None:  # earlier versions trained what is between the embeddings and the first layer
        hashed["frozen"] = "everything below"
    uses = any(uses_rules(point) for point in settings.points())
    return hashed | ({"rules": RULES_VERSION} if uses else {})


def without_effectless(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` without the keys of `NO_EFFECT`, at every depth."""
    return {
        key: without_effectless(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if key not in NO_EFFECT
    }
