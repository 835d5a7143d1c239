"""Chooses what a model keeps so that it becomes a given number of times faster, and times the real model."""

import copy
import statistics
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from compress.console import Console
from compress.errors import ModelError
from compress.export.builders.onnx import export_onnx_from_model
from compress.models.encoder_parts import shape_of
from compress.prune.allocation import allocate, allocate_to_some, by_importance, pareto_front
from compress.prune.latency_table import (
    TOLERANCE,
    LatencyTable,
    SpeedupAttempt,
    SpeedupResult,
    read_table,
    unreachable,
    wanted_speedup,
)
from compress.prune.measure_latency import compare_times, open_variant, random_inputs
from compress.prune.surgery import remove_units
from compress.recipe.prune_schema import Prune
from compress.runtime.predictor import Placement, Predictor
from compress.storage.file_names import expanded_user

CLOSE = 0.04
"""The choice is corrected until the measured speed-up differs from the goal by less."""
ATTEMPTS = 4
SECONDS = 3.0
"""Timing of each attempt."""

Importance = Sequence[Tensor]
"""Of each layer's heads, or of its neurons."""


class Choice(NamedTuple):
    """The units that each layer keeps, and the speed-up that the latency table predicts."""

    heads: list[list[int]]
    ffn: list[list[int]]
    predicted: float


class SpeedupGoal:
    """The goal of one cut: the choice by the latency table, corrected by timing the exported model.

    Raises:
        ModelError: the table is of other models, or the goal is out of its reach.
    """

    def __init__(self, model: PreTrainedModel, settings: Prune, table: LatencyTable | None, console: Console) -> None:
        assert settings.to is not None
        self.model, self.round_to, self.console = model, settings.round_to, console
        self.is_here = settings.latency_table is None
        """Whether the table was measured on this machine, so that the real model can be timed."""
        self.result: SpeedupResult | None = None
        """What was predicted and measured; None before `select`."""
        if settings.latency_table is not None:
            table = read_table(expanded_user(settings.latency_table))
        if table is None:
            raise ModelError("a goal of speed-up needs a latency table.", hint="name a file: prune.latency_table")
        shape, self.table = shape_of(model), table
        reason = table.mismatch(shape) or unreachable(table, shape, settings.to, self.round_to)
        if reason:
            raise ModelError(f"prune.to: {reason}")
        self.goal = wanted_speedup(settings.to, table, shape)
        self.largest = table.largest_speedup(shape, self.round_to)

    def select(self, heads: Importance, ffn: Importance) -> tuple[list[list[int]], list[list[int]]]:
        """Return the heads and neurons that each layer keeps."""
        aim, attempts = min(self.goal, self.largest), list[tuple[float, Choice]]()
        uncut = self._open(self.model) if self.is_here else None
        while len(attempts) < ATTEMPTS:
            choice = choose_by_table(heads, ffn, self.table, aim, self.round_to)
            assert choice is not None  # the smallest model is within reach
            if uncut is None:
                self.console.note(f"cut: {choice.predicted:.2f} times faster by a latency table from elsewhere")
                return self._chosen([(None, choice)], 0)
            if any(choice == earlier for _, earlier in attempts):
                break
            measured = self._measure(uncut, choice)
            attempts.append((measured, choice))
            speed = f"measured {measured:.2f} times faster, {choice.predicted:.2f} predicted"
            self.console.note(f"cut: {speed} (goal {self.goal:g})")
            if abs(measured / self.goal - 1) <= CLOSE or (aim == self.largest and measured < self.goal):
                break
            # The median, because timings vary: one that is off must not decide the next choice alone.
            correction = statistics.median(each.predicted / speed for speed, each in attempts)
            aim = min(self.goal * correction, self.largest)
        return self._closest(attempts)

    def _closest(self, attempts: Sequence[tuple[float, Choice]]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the choice nearest to the goal of those that reach it within `TOLERANCE`; refuse it if none does."""
        speeds = [speed for speed, _ in attempts]
        reached = [speed for speed in speeds if speed >= self.goal * (1 - TOLERANCE)]
        if not reached:
            raise ModelError(
                f"prune.to: {self.goal:g} times faster was not reached: measured at most {max(speeds):.2f}."
            )
        measured = min(reached, key=lambda speed: abs(speed / self.goal - 1))
        if measured > self.goal * (1 + TOLERANCE):
            speeds_up = f"the exported model is {measured:.2f} times faster where {self.goal:g} is asked"
            self.console.warn(f"cut: {speeds_up}: no cut that was timed is nearer, so it removes more than was needed")
        return self._chosen(attempts, speeds.index(measured))

    def _chosen(
        self, attempts: Sequence[tuple[float | None, Choice]], number: int
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the units of this attempt, and keep what was predicted and measured."""
        tried = [
            SpeedupAttempt(
                heads=tuple(map(len, choice.heads)),
                ffn=tuple(map(len, choice.ffn)),
                predicted=choice.predicted,
                measured=measured,
            )
            for measured, choice in attempts
        ]
        self.result = SpeedupResult(goal=self.goal, table=self.table, attempts=tuple(tried), chosen=number)
        chosen = attempts[number][1]
        return chosen.heads, chosen.ffn

    def _measure(self, uncut: Predictor, choice: Choice) -> float:
        """Return how many times faster the exported model is with these units alone."""
        pruned = self._open(remove_units(copy.deepcopy(self.model), choice.heads, choice.ffn))
        inputs = random_inputs(self.table.batch, self.table.length, int(self.model.config.vocab_size))
        return 1 / compare_times(uncut, pruned, inputs, SECONDS).ratio

    def _open(self, model: PreTrainedModel) -> Predictor:
        placement = Placement(self.table.device, self.table.threads)
        return open_variant(export_onnx_from_model(model), self.table.variant, placement, self.table.session)


def choose_by_table(
    heads: Importance, ffn: Importance, table: LatencyTable, speedup: float, round_to: int
) -> Choice | None:
    """Return the units whose removal loses the least importance at this speed-up; None where it cannot be reached.

    Units of a layer go in order of importance, neurons in blocks of ``round_to``. Every layer keeps a head and a block,
    or is dropped, if the table says what that saves, which loses the importance of all its units; one stays.
    """
    layers = [_layer_options(*units, table, round_to) for units in zip(heads, ffn, strict=True)]
    whole = table.model_time(list(map(len, heads)), list(map(len, ffn)))
    choose = allocate if table.layer is None else allocate_to_some
    budget = whole / speedup * (1 + 1e-9) - table.fixed
    options = choose([layer.costs for layer in layers], [layer.losses for layer in layers], budget)
    if options is None:
        return None
    sizes = [layer.sizes[option] for layer, option in zip(layers, options, strict=True)]
    counts, widths = zip(*sizes, strict=True)
    kept = [[_most_important(*layer) for layer in zip(*each, strict=True)] for each in ((heads, counts), (ffn, widths))]
    return Choice(kept[0], kept[1], whole / table.model_time(counts, widths))


class LayerOptions(NamedTuple):
    """What a layer may keep, the best of all that take as long; first nothing, where it may be dropped."""

    sizes: list[tuple[int, int]]
    """(heads, FFN width)."""
    costs: NDArray[np.float64]
    """Milliseconds beyond those of the smallest layer."""
    losses: NDArray[np.float64]
    """The importance of what is removed."""


def _layer_options(heads: Tensor, ffn: Tensor, table: LatencyTable, round_to: int) -> LayerOptions:
    counts = list(range(1, len(heads) + 1))
    widths = sorted({*range(round_to, len(ffn), round_to), len(ffn)})
    sizes = list(product(counts, widths))
    costs = np.add.outer(table.attention_times(counts), table.ffn_times(widths)).ravel()
    losses = np.add.outer(_losses(heads, counts), _losses(ffn, widths)).ravel()
    best = pareto_front(costs, losses)
    options = LayerOptions([sizes[option] for option in best], costs[best], losses[best])
    if table.layer is None:
        return options
    everything = float(torch.cat((heads, ffn)).double().sum())
    return LayerOptions(
        [(0, 0), *options.sizes], np.append(-table.layer, options.costs), np.append(everything, options.losses)
    )


def _most_important(importance: Tensor, count: int) -> list[int]:
    return sorted(by_importance(importance)[:count].tolist())


def _losses(importance: Tensor, sizes: Sequence[int]) -> list[float]:
    """Return the importance that is lost if only so many of the most important units stay."""
    kept = importance.double()[by_importance(importance)].cumsum(0)
    return [float(kept[-1] - kept[size - 1]) for size in sizes]
