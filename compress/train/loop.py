"""The training loop of fine-tuning, distillation and recovery, which differ only in their objective.

A training can be killed at any moment and resumes from its last checkpoint to the same weights: bit for bit on a CPU
(same machine, threads and processes), up to rounding on a GPU, where the order of some sums varies. Batches and
learning rates are pure functions of the update number; everything else, including the states of the random generators,
is in the checkpoint. With several processes, each takes its share of every batch. Gradients are summed with equal
weight per row, so the result equals that of one process up to rounding (and up to dropout, which every process draws
for its own rows). Retrieval is the exception: a query's in-batch negatives are those of its own process only, so more
processes mean fewer negatives. On a CPU, the threads of a single process share batches in the same way where the
losses of a row do not depend on other rows.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel

from compress.console import Console, Progress
from compress.errors import pluralize
from compress.recipe.training_schema import Training, number
from compress.train.core.checkpoints import CheckpointStore, TrainResult, TrainState, training_identity
from compress.train.core.distributed import Processes, returned
from compress.train.core.gradients import DeviceBatches, Gradients, UpdateGradients, find_nonfinite, nan_error
from compress.train.core.optimizer import (
    GradualUnfreezing,
    ModelAndOptimizer,
    frozen,
    load_weights,
    named_weights,
    strip_prefix,
    unfrozen_afterwards,
)
from compress.train.core.shares import ShareThreads, share_count
from compress.train.core.update_schedule import TAIL, Forecaster, UpdateSchedule
from compress.train.fast_paths.fast_training import fast_training, width_multiple
from compress.train.fast_paths.torch_compile import compilable_parts, eager_only
from compress.train.objective import Examples, Objective
from compress.train.precision import PrecisionChoice, PrecisionTrial, choose_precision

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
    start_competes: bool = False,
    noise: float = 0.0,
) -> TrainResult:
    """Train ``model`` in place; it ends with its best weights, or the last ones without ``evaluate``.

    Of several evaluations whose scores are within ``noise`` of the highest, the last one is the best: it was trained
    longest, at the lowest rate. With ``start_competes`` the weights it starts with are evaluated too, and are kept
    where training made them worse. ``settings`` have no `auto` (`resolve_auto`). ``work`` holds checkpoints during
    training and the result afterwards (so that nothing is lost if the caller is killed before it has saved the model);
    the caller removes it. ``evaluate`` runs on the main process, without gradients and in full precision.
    """
    processes = Processes(track)
    store = CheckpointStore(work, training_identity(model, objective, examples, settings, seed))
    with returned(model, *objective.teachers()):
        nn.Module.to(model, processes.device)
        processes.wait()
        finished = store.result()
        if finished is None:
            shown = console if console and processes.is_main else Console("quiet")
            with processes.randomness(seed), frozen(model, settings.freeze), unfrozen_afterwards(model):
                run = TrainingRun(
                    model,
                    objective,
                    examples,
                    settings,
                    seed,
                    processes,
                    store,
                    evaluate,
                    larger_is_better,
                    noise,
                    shown,
                    label,
                )
                finished = run.run(start_competes)
        load_weights(model, store.best(finished["best_at"]))
        processes.wait()
    model.train(False)
    return TrainResult.model_validate({**finished, "seed": seed, "updates": finished["done"]})


@dataclass
class TrainingRun:
    """One running training."""

    model: PreTrainedModel
    objective: Objective
    examples: Examples
    settings: Training
    seed: int
    processes: Processes
    store: CheckpointStore
    evaluate: Evaluate | None
    larger_is_better: bool
    noise: float
    console: Console
    label: str

    def __post_init__(self) -> None:
        device, settings = self.processes.device, self.settings
        self.compiles = settings.compile and device.type == "cuda" and bool(compilable_parts(self.model))
        pad_id = self.model.config.pad_token_id or 0
        self.schedule = UpdateSchedule(self.examples.lengths, settings, self.seed)
        vocabulary = self.examples.vocabulary()
        batches_of = partial(DeviceBatches, self.examples, device, pad_id)
        choice = self._choose_precision(batches_of, vocabulary)
        self.precision = choice.precision
        batches = batches_of(width_multiple(self.precision, device, self.compiles))
        extra = [module.to(device) for module in self.objective.modules()]
        self.threads = ShareThreads(share_count(self.objective, self.model, settings, self.processes))
        self.trained = ModelAndOptimizer(self.model, extra, settings, self.precision, vocabulary, self.threads)
        self.gradients = Gradients(self.objective, batches, self.schedule, self.trained, self.processes, self.threads)
        self.unfreezing = GradualUnfreezing(self.model, settings.unfreeze, self.schedule.per_epoch)
        lengths, evaluates = self.examples.lengths, self.evaluate is not None
        per_row = len(self.examples.example_lengths) / len(lengths)
        self.forecaster = Forecaster(self.schedule, lengths, evaluates, self._note, per_row)
        self.state = TrainState(precision=choice.precision, precision_reason=choice.reason)
        self._saved = (time.monotonic(), 0)

    def run(self, start_competes: bool = False) -> dict[str, Any]:
        """Start, or resume from the last checkpoint; returns the content of the result file."""
        self._resume()
        if self.settings.compile and not self.compiles:
            self.console.note("torch.compile ignored: it needs a GPU and a supported model family")
        if left := self.unfreezing.left_frozen(self.schedule.total):
            self._note(f"unfreeze: {left}")
        teachers, device = self.objective.teachers(), self.processes.device
        patience = math.inf if self.schedule.is_open else self.settings.patience or math.inf
        with (
            fast_training(
                self.model, teachers, self.trained.embeddings, self.precision, device, self.compiles, self.threads.count
            ),
            self.threads.started(),
            self.processes.tracker.running(self.label, self.settings.model_dump()),
            self.console.progress(self.schedule.rows - self.state.rows, self.label, "rows") as progress,
        ):
            if start_competes and self.evaluate is not None and not self.state.done:
                self._evaluate(self.evaluate)
            while self.state.done < self.schedule.total and self.state.without_better < patience:
                if self._gains_nothing():
                    break
                self._update(progress)
        if self.state.done < self.schedule.total and self.state.ending is None:
            self.state.ending = self._patience_ended()
        if self.state.best_at is None:  # without evaluation the last weights are the result
            self.state.best_at = self.state.done
            self._save_best()
        result = {**asdict(self.state), "epochs": round(self.state.done / self.schedule.per_epoch, 4)}
        if self.processes.is_main:
            self.store.finish(result)
        self.processes.wait()
        return result

    def _choose_precision(
        self, batches_of: Callable[[int], DeviceBatches], vocabulary: NDArray[np.int64]
    ) -> PrecisionChoice:
        """Return the precision of the checkpoint, else the main process's choice."""
        choice = PrecisionChoice(precision=self.store.precision() or "")
        if self.processes.is_main and not choice.precision:
            trial = PrecisionTrial(
                self.model,
                self.objective,
                self.settings,
                batches_of,
                self.schedule,
                self.examples.lengths,
                vocabulary,
                self.processes,
            )
            choice = choose_precision(self.settings.precision, self.processes.device, trial)
            if choice.reason:
                self._note(f"precision {choice.precision} ({choice.reason})")
        is_bf16 = self.processes.from_main(float(choice.precision == "bf16"))
        return choice.model_copy(update={"precision": "bf16" if is_bf16 else "fp32"})

    def _note(self, text: str) -> None:
        self.console.note(f"{self.label}: {text}")

    def _update(self, progress: Progress) -> None:
        started = time.monotonic()
        self.model.train()
        self.objective.begin(self.state.done / self.schedule.total, self.state.done)
        self.unfreezing.apply(self.state.done, self.gradients.models)
        update = self.gradients.accumulate(self.state.done, self._checkpoint_due())
        if value := find_nonfinite(update.losses, update.norm):  # before it reaches the weights
            raise nan_error(value, self.state.done, self._saved[1], self.examples, self.gradients, self.settings)
        self.trained.step(self.schedule.factor(self.state.done), update.norm, self.settings.clip)
        self._record(update, time.monotonic() - started)
        loss = f"loss {sum(update.losses.values()):.3f}"
        best = "" if self.state.score is None else f", kept {self.state.score:.4f}"
        progress.advance(update.rows, loss + best, self.forecaster.left(self.state))
        if self.evaluate is not None and self.schedule.evaluates_after(self.state.done):
            self._evaluate(self.evaluate)
        if self.state.done < self.schedule.total and (self._end_soon() or update.checkpoint_due):
            self._save()

    def _end_soon(self) -> bool:
        """Let the rate fall from now on if there is a reason; returns whether there is.

        The caller saves a checkpoint then, since a resumed training would not reach a limit of time at the same update.
        """
        state, schedule, settings = self.state, self.schedule, self.settings
        if state.tail is not None:
            return False
        seconds = self.processes.from_main(state.seconds) if settings.minutes else 0.0
        is_late = settings.minutes and seconds * (1 + TAIL) >= 60 * settings.minutes
        if is_late and schedule.would_end_sooner(state.done):
            state.ending = f"the limit of {settings.minutes:g} minutes"
        elif schedule.may_end_soon(state.done) and state.without_better >= (settings.patience or math.inf):
            state.ending = self._patience_ended()
        elif schedule.must_end_soon(state.done):
            state.ending = "the most allowed"
        else:
            return False
        state.tail = state.done
        schedule.end_soon(state.done)
        self._note(f"{state.ending}: the rate falls from update {state.done} to the last one, {schedule.total}")
        return True

    def _patience_ended(self) -> str:
        return f"{pluralize(self.state.without_better, 'evaluation')} without improvement"

    def _gains_nothing(self) -> bool:
        """Whether the start remains the best in the second half of the falling rate, and scores do not rise any more.

        The start's weights are the result then, as they would be after more updates without gain.
        """
        state, total = self.state, self.schedule.total
        if state.tail is None or state.best_at != 0 or state.done == total:
            return False
        fallen = [entry["update"] for entry in state.history if entry["update"] > state.tail]
        if not fallen or 2 * fallen[-1] < state.tail + total:
            return False
        if min(state.without_better, len(fallen)) < (self.settings.patience or math.inf):
            return False
        state.ending = f"{state.ending}; no gain over the start"
        self._note(f"no gain over the start: ends after update {state.done} of {total}")
        return True

    def _record(self, update: UpdateGradients, seconds: float) -> None:
        state = self.state
        rate = number(self.settings.learning_rate) * self.schedule.factor(state.done)
        state.done, state.rows, state.seconds = state.done + 1, state.rows + update.rows, state.seconds + seconds
        state.add_losses(update.losses)
        losses = {f"loss/{name}": loss for name, loss in update.losses.items()}
        self.processes.tracker.log({**losses, "learning_rate": rate}, state.done)
        self.forecaster.updated(state, seconds)

    def _evaluate(self, evaluate: Evaluate) -> None:
        """Score the model on the main process; save its weights if they are the best so far.

        Scores while the objective is not selectable are recorded and do not compete.
        """
        started, score, state = time.monotonic(), math.nan, self.state
        if self.processes.is_main:
            self.model.train(False)
            with torch.no_grad(), eager_only(self.compiles):  # fp32, as the result will be scored
                score = evaluate(self.model)
        score = self.processes.from_main(score)
        competes = self.objective.is_selectable() or state.done == self.schedule.total
        finite_score = score if math.isfinite(score) else None
        if competes and state.done:
            improves = self._gain(score, state.trained_score) > 0 or (state.trained_score is None and not state.best_at)
            waits = improves or not self.unfreezing.is_complete(state.done - 1)
            state.without_better = 0 if waits else state.without_better + 1
            state.trained_score = finite_score if improves else state.trained_score
        if competes and not state.done:
            state.start_score = finite_score
        better = competes and (state.best_at is None or self._is_best(score))
        state.add_evaluation(state.done / self.schedule.per_epoch, finite_score)
        seconds = time.monotonic() - started
        state.seconds, state.evaluating = state.seconds + seconds, state.evaluating + seconds
        self.processes.tracker.log({"select": score}, state.done)
        if better:
            state.best_at, state.score = state.done, finite_score
            self._save_best()

    def _is_best(self, score: float) -> bool:
        """Return whether a score is within noise of the highest one, and not below that of a start that competes."""
        return (
            self._gain(score, self.state.start_score) >= 0
            and self._gain(score, self.state.trained_score) >= -self.noise
        )

    def _gain(self, score: float, other: float | None) -> float:
        """Return by how much a score is better than another, or than none at all."""
        if other is None or not math.isfinite(score):
            return math.inf if math.isfinite(score) else -math.inf
        return score - other if self.larger_is_better else other - score

    def _checkpoint_due(self) -> bool:
        minutes, steps = self.settings.checkpoint.minutes, self.settings.checkpoint.steps
        saved_time, saved_update = self._saved
        late = minutes is not None and time.monotonic() - saved_time >= 60 * minutes
        return late or (steps is not None and self.state.done + 1 - saved_update >= steps)

    def _save_best(self) -> None:
        if self.processes.is_main:
            self.store.save_best(self.state.done, named_weights(self.model))

    def _save(self) -> None:
        states = self.processes.random_states(self.threads.generators)
        if self.processes.is_main:
            tensors = {f"random.{name}": state for name, state in states.items()} | self.trained.tensors()
            state = {**asdict(self.state), "threads": self.threads.count}
            self.store.save(self.state.done, state, tensors, self.state.best_at)
        self._saved = (time.monotonic(), self.state.done)

    def _resume(self) -> None:
        """Restore everything from the last checkpoint, if any."""
        self.processes.share_weights([self.model, *self.trained.extra])
        self.trained.weights_changed()
        checkpoint = self.store.latest()
        if checkpoint is None:
            return
        state, tensors = checkpoint
        self.state = TrainState.of({"precision": self.precision, **state})
        if self.state.tail is not None:
            self.schedule.end_soon(self.state.tail)
        self._saved = (time.monotonic(), self.state.done)
        self.trained.load(tensors)
        random_states = strip_prefix("random.", tensors)
        count, (now, each) = len(random_states["cpu"]), (self.processes.count, self.threads.count)
        threads = state.get("threads") or math.gcd(count, each)  # earlier versions stored the count alone
        if (count // threads, threads) == (now, each):
            self.processes.set_random_states(random_states, self.threads.generators)
        else:
            before = f"{count // threads} × {threads}"
            self.console.warn(
                f"processes × threads are {now} × {each}, and were {before}: training resumes, but not bit for bit."
            )
        self.console.note(f"resuming from the checkpoint at update {self.state.done} of {self.schedule.total}")
