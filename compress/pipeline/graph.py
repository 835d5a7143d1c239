"""The words of the graph: steps, competitors and the plan that holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compress.errors import UsageError, nearest
from compress.pipeline.fingerprint import fingerprint
from compress.pipeline.forecast.throughput_history import Rates
from compress.pipeline.step_context import Workbench
from compress.recipe.schema import Recipe
from compress.variants import Variant


@dataclass(frozen=True)
class Done:
    """What a step did, by which later runs are forecast."""

    amount: float
    """In the unit of its kind."""
    rates: Rates | None = None
    """How fast it trained."""


Run = Callable[[Workbench], Done | float | None]
"""Does a step in its working folder; returns what was done, or its amount alone."""


@dataclass(frozen=True)
class Step:
    """One node of the graph."""

    name: str
    kind: str
    settings: Mapping[str, Any]
    needs: tuple[str, ...]
    fingerprint: str
    run: Run
    trains: bool = False
    """All processes of a launch take part."""
    optional: bool = False
    """When it fails the run goes on without what needs it, and the report says so."""


@dataclass(frozen=True)
class Competitor:
    """One model in one variant: a row of the ledger."""

    model: str
    variant: Variant
    step: str
    """The step whose folder serves it."""
    scores: Mapping[str, str]
    """By target title, the step that scored it as it is used there."""
    perturbs: Mapping[str, str] = field(default_factory=dict)
    """The same for changed texts; empty where the recipe asks for none."""

    @property
    def key(self) -> str:
        """`pruned/onnx-int8`."""
        return f"{self.model}/{self.variant.name}"


@dataclass
class Plan:
    """The steps in the order in which they run."""

    recipe: Recipe
    steps: list[Step] = field(default_factory=list)
    competitors: list[Competitor] = field(default_factory=list)
    missing_targets: dict[str, str] = field(default_factory=dict)
    """Targets that are not on this machine, and why."""

    def step(self, name: str) -> Step:
        """The step called ``name``."""
        return next(step for step in self.steps if step.name == name)

    def add(
        self, name: str, kind: str, settings: Mapping[str, Any], needs: Sequence[str], run: Run, **marks: bool
    ) -> str:
        """Append a step after those it needs; returns its name."""
        mark = fingerprint(kind, settings, {need: self.step(need).fingerprint for need in needs})
        self.steps.append(Step(name, kind, settings, tuple(needs), mark, run, **marks))
        return name

    def matching(self, word: str) -> list[Step]:
        """Steps called ``word``, or all of that kind."""
        found = [step for step in self.steps if word in (step.name, step.kind)]
        if not found:
            known = {step.kind for step in self.steps} | {step.name for step in self.steps}
            raise UsageError(f"this recipe has no step '{word}'{nearest(word, known)}")
        return found

    def dependents(self, names: Sequence[str]) -> set[str]:
        """The named steps and every step that needs one of them, directly or not."""
        reached = set(names)
        for step in self.steps:
            if reached.intersection(step.needs):
                reached.add(step.name)
        return reached
