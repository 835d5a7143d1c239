"""The section about pruning: heads and FFN neurons, goals, word pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from compress.recipe.distill_schema import Recover
from compress.recipe.field_types import (
    Flag,
    Frozen,
    Milliseconds,
    Natural,
    Number,
    OneOf,
    PathText,
    Share,
    Width,
    name_in,
    switched,
)
from compress.recipe.student_schema import Vocabulary


class PruneTo(OneOf):
    """The goal of pruning, instead of what is removed: one of these."""

    instead = "give one goal: parameters: 0.3, speedup: 2, or p50: 0.5ms"
    parameters: Number | None = Field(None, gt=0.0, lt=1.0)
    """Remaining share of the encoder layers' parameters (without embeddings)."""
    speedup: Number | None = Field(None, gt=1.0, le=1_000)
    """How many times faster the pruned model should be than the model before pruning, in `prune.variant` at
    `prune.target`."""
    p50: Milliseconds | None = None
    """What the pruned model alone may take there: becomes a speed-up by the latency table."""

    @property
    def is_of_latency(self) -> bool:
        """Whether latencies are needed to reach the goal."""
        return self.parameters is None

    @property
    def expected_speedup(self) -> float:
        """The goal for estimates: before latencies are measured, what a goal of time needs is not known."""
        return self.speedup or 2.0


LATENCY_KEYS = ("target", "variant", "latency_table")


class Prune(Frozen):
    """Removal of the least important heads and FFN neurons, uneven across layers; and of word pieces."""

    heads: Share = 0.0
    ffn: Share = 0.0
    to: PruneTo | None = None
    target: str | None = None
    """The title of the target at which `to.speedup` and `to.p50` are measured; by default the first."""
    variant: Annotated[str, name_in("latency variants")] | None = None
    """The variant in which it is measured; by default onnx-int8 if the recipe quantizes, else onnx-fp32. It need not
    compete."""
    latency_table: PathText | None = None
    """A file with latencies measured elsewhere, for a target that is not here: latency_table.json of a `latency` step.
    Without it they are measured here."""
    criterion: Annotated[str, name_in("pruning criteria")] = "taylor"
    """How importance is computed; for a goal of latency by default `fisher`, which compares heads with neurons
    better."""
    batches: Natural = Field(64, le=10**6)
    """Batches of train over which importance is summed."""
    round_to: Width = 16
    """FFN widths are multiples of this."""
    even: Flag = False
    """Remove the same share from every layer."""
    rescale: Flag | None = None
    """Fit the output weights of what stays to the outputs of the unpruned layers, by least squares and without
    training. By default as the criterion does: only `kwon`."""
    cuts: Natural = Field(1, le=100)
    """Reach the shares in this many cuts of equal size, each followed by a recovery."""
    recover: Annotated[Recover | Literal[False], switched] = Recover()
    vocabulary: Vocabulary | None = None
    """Which word pieces stay: those of train and of unlabelled texts (`seen`), a number, or the frequent ones."""

    @model_validator(mode="before")
    @classmethod
    def _choose_criterion(cls, value: Any) -> Any:
        goal = value.get("to") if isinstance(value, Mapping) else None
        goal = dict(goal) if isinstance(goal, PruneTo) else goal
        of_latency = isinstance(goal, Mapping) and any(goal.get(name) is not None for name in ("speedup", "p50"))
        return {"criterion": "fisher", **value} if of_latency else value

    @model_serializer(mode="wrap")
    def _omit_latency(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if name not in LATENCY_KEYS or value is not None}

    @property
    def removes_units(self) -> bool:
        """Whether heads or neurons are removed."""
        return self.to is not None or bool(self.heads or self.ffn)

    @model_validator(mode="after")
    def _check_cuts(self) -> Prune:
        if self.cuts > 1 and not self.recover:
            raise ValueError("cuts: without a recovery between them, several cuts are one: leave out cuts or recover")
        return self

    @model_validator(mode="after")
    def _check_amount(self) -> Prune:
        if not self.removes_units and self.vocabulary is None:
            raise ValueError(
                "say how much: heads: 0.25, ffn: 0.5, to: {parameters: 0.3}, to: {speedup: 2}, or to: {p50: 0.5ms};"
                " or vocabulary: seen"
            )
        if self.to is not None and (self.heads or self.ffn):
            raise ValueError("give either the shares removed (heads, ffn) or the goal (to)")
        return self

    def stages(self) -> list[Prune]:
        """Return the settings of each cut: its shares are of what the cut before it left."""
        if self.cuts == 1:
            return [self]

        def share(removed: float, number: int) -> float:
            before, after = ((1.0 - removed * count / self.cuts) for count in (number - 1, number))
            return 1.0 - after / before

        return [self._stage(partial(share, number=number)) for number in range(1, self.cuts + 1)]

    def _stage(self, share: Callable[[float], float]) -> Prune:
        to = PruneTo(parameters=1.0 - share(1.0 - self.remaining)) if self.remaining else None
        return self.model_copy(update={"heads": share(self.heads), "ffn": share(self.ffn), "to": to, "cuts": 1})

    @model_validator(mode="after")
    def _check_latency(self) -> Prune:
        if not self.has_latency_goal and (unused := [key for key in LATENCY_KEYS if getattr(self, key) is not None]):
            raise ValueError(f"{', '.join(unused)}: only for a goal of latency, to: {{speedup: 2}}")
        if self.has_latency_goal and self.even:
            raise ValueError("even: a goal of latency chooses how much each layer loses; leave out even")
        if self.has_latency_goal and self.cuts > 1:
            raise ValueError("cuts: a goal of latency is reached in one cut; leave out cuts")
        if self.latency_table is not None and self.target is not None:
            raise ValueError("give either target (measured here) or latency_table (measured elsewhere)")
        return self

    @property
    def remaining(self) -> float | None:
        """The goal of parameters; None where the goal is another."""
        return self.to.parameters if self.to else None

    @property
    def has_latency_goal(self) -> bool:
        """Whether the goal is a speed-up or a time, for which latencies are measured."""
        return self.to is not None and self.to.is_of_latency
