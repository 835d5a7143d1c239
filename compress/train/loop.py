"""The one training loop: fine-tuning, distillation and recovery differ only in the objective they hand to it.

A training can be killed at any moment and resumes from its last checkpoint to the same weights: bit for bit on a CPU
(same machine, threads and processes), up to rounding on a GPU, where the order of some sums varies. Batches and
learning rates are pure functions of the update number; everything else, including the states of the random generators,
is in the checkpoint. With several processes, each takes its share of every batch. Gradients are summed with equal
weight per row, so the result equals that of one process up to rounding (and up to dropout, which every process draws
for its own rows). Retrieval is the exception: a query's in-batch negatives are those of its own process only, so more
processes mean fewer negatives.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from compress.console import Console, Progress
from compress.recipe.training_schema import Training
from compress.train.core.checkpoints import CheckpointStore, training_identity
from compress.train.core.device_batches import DeviceBatches
from compress.train.core.distributed import Processes
from compress.train.core.eta import Forecaster, attention_cost_ratio
from compress.train.core.gradients import Gradients, UpdateGradients
from compress.train.core.model_and_optimizer import ModelAndOptimizer
from compress.train.core.nan_diagnosis import find_nonfinite, nan_error
from compress.train.core.optimizer import frozen
from compress.train.core.precision import choose_precision
from compress.train.core.state_dict import load_weights, strip_prefix, weights
from compress.train.core.train_state import Cost, Evaluation, TrainResult, TrainState
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.fast_paths.fast_training import fast_training
from compress.train.fast_paths.torch_compile import MULTIPLE, compilable_parts, eager_only
from compress.train.objective import Examples, Objective

Evaluate = Callable[[PreTrainedModel], float]


def train(
    model: PreTrainedModel,
    objective: Objective,
    examples: Examples,
    settings: Training,
    *,
    seed: int,
    work: Path,
    evaluate: Evaluate | None = None,
    larger_is_better: bool = True,
    console: Console | None = None,
    track: str | None = None,
    label: str = "train",
) -> TrainResult:
    """Train ``model`` in place and leave it with its best weights, or its last where nothing evaluates.

    ``work`` holds checkpoints while this runs and the result afterwards (so that a caller that is killed before it
    has saved the model loses nothing); the caller removes it. ``evaluate`` runs on the main process, without
    gradients and in full precision.
    """
    processes = Processes(track)
    store = CheckpointStore(work, training_identity(model, objective, examples, settings, seed))
    device = model.device
    nn.Module.to(model, processes.device)
    processes.wait()
    finished = store.result()
    if finished is None:
        with processes.randomness(seed), frozen(model, settings.freeze):
            run = TrainingRun(model, objective, examples, settings, seed, processes, store, evaluate, larger_is_better)
            finished = run.run(console if console and processes.is_main else Console("quiet"), label)
    load_weights(model, store.best(finished["best_at"]))
    processes.wait()
    nn.Module.to(model, device).train(False)
    history = tuple(Evaluation(**entry) for entry in finished["history"])
    keys = ("score", "best_at", "rows", "seconds", "precision")
    told = {key: finished[key] for key in keys}
    return TrainResult(seed=seed, updates=finished["done"], history=history, cost=Cost.of(finished), **told)


class TrainingRun:
    """One training while it runs."""

    def __init__(
        self,
        model: PreTrainedModel,
        objective: Objective,
        examples: Examples,
        settings: Training,
        seed: int,
        processes: Processes,
        store: CheckpointStore,
        evaluate: Evaluate | None,
        larger_is_better: bool,
    ) -> None:
        self.model = model
        self.objective = objective
        self.examples = examples
        self.settings = settings
        self.processes = processes
        self.store = store
        self.evaluate = evaluate
        self.sign = 1.0 if larger_is_better else -1.0
        self.compiles = settings.compile and processes.device.type == "cuda" and bool(compilable_parts(model))
        pad_id = model.config.pad_token_id or 0
        batches = DeviceBatches(examples, processes.device, pad_id, MULTIPLE if self.compiles else 1)
        self.plan = UpdateSchedule(examples.lengths, settings, seed)
        self.precision = choose_precision(settings.precision, processes.device)
        extra = [module.to(processes.device) for module in objective.modules()]
        self.learner = ModelAndOptimizer(model, extra, settings, self.precision, examples.vocabulary())
        self.gradients = Gradients(objective, batches, self.plan, self.learner, processes)
        self.state = TrainState()
        self._saved = (time.monotonic(), 0)

    def run(self, console: Console, label: str) -> dict[str, Any]:
        """Go on from the last checkpoint, or begin; returns what the result file holds."""
        self._resume(console)
        settings = self.settings.model_dump()
        self.forecaster = Forecaster(
            self.plan,
            self.examples.lengths,
            attention_cost_ratio(self.model),
            self.objective.seconds_cached,
            lambda text: console.note(f"{label}: {text}"),
            self.evaluate is not None,
        )
        with (
            self._at_speed(console),
            self.processes.tracking(label, settings),
            console.progress(self.plan.rows_from(self.state.done), label, "rows") as progress,
        ):
            while self.state.done < self.plan.total and not self._out_of_patience():
                self._update(progress)
        if self.state.best_at is None:  # nothing evaluates: the last weights are the result
            self.state.best_at = self.state.done
            self._save_best()
        result = {**asdict(self.state), "precision": self.precision}
        if self.processes.is_main:
            self.store.finish(result)
        self.processes.wait()
        return result

    def _at_speed(self, console: Console) -> AbstractContextManager[None]:
        if self.settings.compile and not self.compiles:
            console.note("compile is passed over: it is for a GPU, and not for every family")
        teachers, device = self.objective.teachers(), self.processes.device
        return fast_training(self.model, teachers, self.learner.words, self.precision, device, self.compiles)

    def _update(self, progress: Progress) -> None:
        started = time.monotonic()
        self.model.train()
        self.objective.begin(self.state.done / self.plan.total)
        made = self.gradients.of(self.state.done, self._checkpoint_due())
        self._check(made)
        self._step(made.norm)
        seconds = time.monotonic() - started
        self._count(made, seconds)
        self.forecaster.updated(self.state, seconds)
        shown = f"loss {sum(made.losses.values()):.3f}"
        best = "" if self.state.score is None else f", best {self.state.score:.4f}"
        progress.advance(made.rows, shown + best, self.forecaster.left(self.state))
        if self.evaluate is not None and self.plan.evaluates_after(self.state.done):
            self._evaluate()
        if made.due and self.state.done < self.plan.total:
            self._save()

    def _check(self, made: UpdateGradients) -> None:
        """Stop at what is not a number, before it reaches the weights."""
        if broken := find_nonfinite(made.losses, made.norm):
            raise nan_error(broken, self.state.done, self._saved[1], self.examples, self.gradients, self.settings)

    def _step(self, norm: float) -> None:
        self.learner.step(self.plan.factor(self.state.done), norm, self.settings.clip)

    def _count(self, made: UpdateGradients, seconds: float) -> None:
        state = self.state
        state.done, state.rows, state.seconds = state.done + 1, state.rows + made.rows, state.seconds + seconds
        state.add_losses(made.losses)
        rate = self.settings.learning_rate * self.plan.factor(state.done - 1)
        self.processes.log(
            {**{f"loss/{name}": loss for name, loss in made.losses.items()}, "learning_rate": rate}, state.done
        )

    def _evaluate(self) -> None:
        """Score the model on the main process; keep its weights where they are the best so far.

        What is scored before the objective is_selectable is written down and does not compete.
        """
        assert self.evaluate is not None
        started = time.monotonic()
        score = math.nan
        if self.processes.is_main:
            self.model.train(False)
            with torch.no_grad(), eager_only(self.compiles):  # in full precision, as the result will be scored
                score = self.evaluate(self.model)
        score = self.processes.from_main(score)
        state = self.state
        competes = self.objective.is_selectable() or state.done == self.plan.total
        better = competes and (state.best_at is None or self._better(score))
        if competes:
            state.without_better = 0 if better else state.without_better + 1
        took = time.monotonic() - started
        state.seconds += took
        told = score if math.isfinite(score) else None
        epoch = state.done / self.plan.per_epoch
        state.history.append(asdict(Evaluation(state.done, epoch, told, state.mean_losses())))
        state.sums, state.counted = {}, {}
        self.forecaster.evaluated(state, took)
        self.processes.log({"select": score}, state.done)
        if better:
            state.best_at, state.score = state.done, told
            self._save_best()

    def _better(self, score: float) -> bool:
        if not math.isfinite(score):
            return False
        return self.state.score is None or self.sign * score > self.sign * self.state.score

    def _out_of_patience(self) -> bool:
        return self.settings.patience is not None and self.state.without_better >= self.settings.patience

    def _checkpoint_due(self) -> bool:
        minutes, steps = self.settings.checkpoint.minutes, self.settings.checkpoint.steps
        then, done = self._saved
        late = minutes is not None and time.monotonic() - then >= 60 * minutes
        return late or (steps is not None and self.state.done + 1 - done >= steps)

    def _save_best(self) -> None:
        if self.processes.is_main:
            self.store.save_best(self.state.done, dict(weights(self.model)))

    def _save(self) -> None:
        states = self.processes.random_states()
        if self.processes.is_main:
            tensors = {f"random.{name}": state for name, state in states.items()} | self.learner.tensors()
            self.store.save(self.state.done, asdict(self.state), tensors, self.state.best_at)
        self._saved = (time.monotonic(), self.state.done)

    def _resume(self, console: Console) -> None:
        """Take everything from the last checkpoint, where there is one."""
        self.processes.share_weights([self.model, *self.learner.extra])
        self.learner.weights_were_set()
        checkpoint = self.store.latest()
        if checkpoint is None:
            return
        self.state = TrainState.of(checkpoint.state)
        self._saved = (time.monotonic(), self.state.done)
        self.learner.put(checkpoint.tensors)
        states = strip_prefix("random.", checkpoint.tensors)
        if len(states["cpu"]) == self.processes.count:
            self.processes.set_random_states(states)
        else:
            console.warn(
                f"the checkpoint comes from {len(states['cpu'])} processes: this goes on, but not bit for bit."
            )
        console.note(f"going on from the checkpoint at update {self.state.done} of {self.plan.total}")
