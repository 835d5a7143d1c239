"""The types of a plan: its steps, the models they make, and the variants that are measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compress.errors import UsageError, nearest
from compress.pipeline.fingerprint import fingerprint
from compress.pipeline.step_context import StepContext
from compress.recipe.distill_schema import Distill
from compress.recipe.measure_schema import Target
from compress.recipe.schema import Recipe
from compress.recipe.yaml_lines import KeyPath
from compress.steps import STEPS, distillations
from compress.steps.model_step import PlannedModel
from compress.tasks import KINDS
from compress.variants import Variant

Run = Callable[[StepContext], Mapping[str, Any] | None]
"""Does a step in its working folder; returns as plain JSON values the throughput of a training, or what another step
measured and leaves out of its result."""


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
    tolerant: bool = False
    """Runs with those of its inputs that exist; other steps are skipped where one is absent."""
    in_effect: Callable[[StepContext], bool] | None = None
    """Whether what it did outside the store is still so; None for steps whose whole result is their folder."""
    stage: str = ""
    """The title of its stage, where that is not the one of its kind."""
    predicted_rows: Callable[[int], float] | None = None
    """For forecasts, how many rows it predicts with a whole model, by the rows of train; None: as its kind says."""


@dataclass(frozen=True)
class ModelVariant:
    """One model in one variant: a row of the ledger."""

    model: str
    variant: Variant
    step: str
    """The step whose folder serves it."""
    scores: Mapping[str, str]
    """By target title, the step that scored it as it is used there."""
    perturbs: Mapping[str, str] = field(default_factory=dict)
    """The same for changed texts; empty where the recipe requests none."""
    fallback: str | None = None
    """The step that judged its loss by quantization; None where it was not quantized."""

    @property
    def key(self) -> str:
        """`pruned/onnx-int8`."""
        return f"{self.model}/{self.variant.name}"

    @property
    def unquantized(self) -> str | None:
        """The key of the row it was quantized from, or is compared with; None where it is not quantized."""
        name = self.variant.unquantized
        return f"{self.model}/{name}" if name else None


class StepPlan:
    """Steps in the order in which they run."""

    steps: list[Step]

    @property
    def track(self) -> str | None:
        """The experiment tracker of trainings."""
        raise NotImplementedError

    def step(self, name: str) -> Step:
        """The step called ``name``."""
        return next(step for step in self.steps if step.name == name)

    def add(
        self, name: str, kind: str, settings: Mapping[str, Any], needs: Sequence[str], run: Run, **flags: Any
    ) -> str:
        """Append a step after those it needs; returns its name."""
        own = fingerprint(kind, settings, {need: self.step(need).fingerprint for need in needs})
        self.steps.append(Step(name, kind, settings, tuple(needs), own, run, **flags))
        return name

    def matching(self, word: str) -> list[Step]:
        """Steps called ``word``, or all of that kind."""
        matches = [step for step in self.steps if word in (step.name, step.kind)]
        if not matches:
            known = {step.kind for step in self.steps} | {step.name for step in self.steps}
            raise UsageError(f"this recipe has no step '{word}'{nearest(word, known)}")
        return matches

    def until(self, word: str | None) -> list[Step]:
        """Return the steps up to the last one that ``word`` means; None: all."""
        return self.steps[: self.steps.index(self.matching(word)[-1]) + 1] if word else [*self.steps]

    def dependents(self, names: Sequence[str]) -> set[str]:
        """The named steps and every step that needs one of them, directly or not."""
        reached = set(names)
        for step in self.steps:
            if reached.intersection(step.needs):
                reached.add(step.name)
        return reached


@dataclass
class Plan(StepPlan):
    """The steps of a task's recipe."""

    recipe: Recipe
    steps: list[Step] = field(default_factory=list)
    models: list[PlannedModel] = field(default_factory=list)
    """The teacher first, and each after its parent: the only description of a run's models."""
    cascades: list[PlannedModel] = field(default_factory=list)
    """Models that are made of the files of two others."""
    variants: list[ModelVariant] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    """By format that is built for winners only, the step that builds it."""
    missing_targets: dict[str, str] = field(default_factory=dict)
    """Targets that are not on this machine, and why."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """A warning for each format that `export: all` leaves out, by format."""

    def add(
        self, name: str, kind: str, settings: Mapping[str, Any], needs: Sequence[str], run: Run, **flags: Any
    ) -> str:
        """Append a step after those it needs; returns its name. Trainings depend on how the task's kind learns."""
        if flags.get("trains") and (version := KINDS[self.recipe.task.kind].training_version) > 1:
            settings = {**settings, "training_version": version}
        return super().add(name, kind, settings, needs, run, **flags)

    @property
    def track(self) -> str | None:
        """The experiment tracker of trainings."""
        return self.recipe.track

    @property
    def distillations(self) -> list[tuple[KeyPath, Distill]]:
        """The trainings that learn from another model, with their key paths in the recipe."""
        return list(distillations(self.recipe))

    @property
    def teacher(self) -> PlannedModel:
        """The model that all others descend from."""
        return self.models[0]

    @property
    def evaluated(self) -> list[PlannedModel]:
        """The models with rows in the ledger."""
        return [model for model in self.models if model.evaluated]

    @property
    def final(self) -> list[PlannedModel]:
        """The models of which no other one with rows is made: the last one, and each of the further students."""
        parents = [self.evaluated_parent(model.name) for model in self.evaluated]
        return [model for model in self.evaluated if model not in parents]

    @property
    def present_targets(self) -> list[Target]:
        """The recipe's targets that are on this machine."""
        return [target for target in self.recipe.targets if target.title not in self.missing_targets]

    def model(self, name: str) -> PlannedModel:
        """The model called ``name``, or the cascade."""
        return next(model for model in (*self.models, *self.cascades) if model.name == name)

    def model_of(self, step: str) -> PlannedModel | None:
        """The model that ``step`` makes; None for steps that make none."""
        return next((model for model in self.models if model.step == step), None)

    def evaluated_parent(self, name: str) -> PlannedModel | None:
        """The nearest ancestor of the model called ``name`` that has rows in the ledger."""
        parent = self.model(name).parent
        if parent is None:
            return None
        return self.model(parent) if self.model(parent).evaluated else self.evaluated_parent(parent)

    def matching(self, word: str) -> list[Step]:
        """Steps called ``word``, all of that kind, or those that make the models of that recipe section."""
        models = {each.step for each in self.models if word in (each.section, *STEPS[each.section].path[:1])}
        named = [step for step in self.steps if word in (step.name, step.kind) or step.name in models]
        return named or super().matching(word)
