"""The one training loop: fine-tuning, distillation and recovery differ only in the objective they hand to it.

A training can be killed at any moment and goes on from its last checkpoint to the same weights, bit for bit (on the
same machine, with the same threads and processes): batches and rates are pure functions of the update's number, and
everything else, the random generators included, stands in the checkpoint. Started on several processes, each takes
its share of every batch; gradients are summed with each row weighing the same, so the result is that of one process
up to rounding (and up to dropout, which every process draws for its own rows). Retrieval is the exception: a query is
told from the documents of the other rows of its own process only, so more processes mean fewer negatives.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.console import Console, Progress
from compress.errors import CompressError
from compress.recipe.training import Distill, Training
from compress.train.batches import Batches
from compress.train.blame import rows_to_blame, teacher_to_blame
from compress.train.compiled import MULTIPLE, as_they_are, parts_of
from compress.train.forecast import Forecaster, pair_weight
from compress.train.learner import Learner
from compress.train.objective import TASK, Examples, Objective
from compress.train.optimizer import frozen
from compress.train.plan import Plan
from compress.train.precision import choose_precision
from compress.train.processes import Processes
from compress.train.record import Cost, Evaluation, State, TrainResult
from compress.train.speed import at_speed
from compress.train.store import Store, identity
from compress.train.weights import put_weights, under, weights

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
    store = Store(work, identity(model, objective, examples, settings, seed))
    device = model.device
    nn.Module.to(model, processes.device)
    processes.wait()
    finished = store.result()
    if finished is None:
        with processes.randomness(seed), frozen(model, settings.freeze):
            run = Run(model, objective, examples, settings, seed, processes, store, evaluate, larger_is_better)
            finished = run.to_the_end(console if console and processes.is_main else Console("quiet"), label)
    put_weights(model, store.best(finished["best_at"]))
    processes.wait()
    nn.Module.to(model, device).train(False)
    history = tuple(Evaluation(**entry) for entry in finished["history"])
    keys = ("score", "best_at", "rows", "seconds", "precision")
    told = {key: finished[key] for key in keys}
    return TrainResult(seed=seed, updates=finished["done"], history=history, cost=Cost.of(finished), **told)


class Run:
    """One training while it runs."""

    def __init__(
        self,
        model: PreTrainedModel,
        objective: Objective,
        examples: Examples,
        settings: Training,
        seed: int,
        processes: Processes,
        store: Store,
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
        self.compiles = settings.compile and processes.device.type == "cuda" and bool(parts_of(model))
        pad_id = model.config.pad_token_id or 0
        self.batches = Batches(examples, processes.device, pad_id, MULTIPLE if self.compiles else 1)
        self.plan = Plan(examples.lengths, settings, seed)
        self.precision = choose_precision(settings.precision, processes.device)
        extra = [module.to(processes.device) for module in objective.modules()]
        self.learner = Learner(model, extra, settings, self.precision, examples.vocabulary())
        self.state = State()
        self.norm = 0.0
        self._saved = (time.monotonic(), 0)

    def to_the_end(self, console: Console, label: str) -> dict[str, Any]:
        """Go on from the last checkpoint, or begin; returns what the result file holds."""
        self._resume(console)
        settings = self.settings.model_dump()
        self.forecaster = Forecaster(
            self.plan,
            self.examples.lengths,
            pair_weight(self.model),
            self.objective.spared,
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
        return at_speed(self.model, teachers, self.learner.words, self.precision, device, self.compiles)

    def _update(self, progress: Progress) -> None:
        started = time.monotonic()
        self.model.train()
        self.objective.begin(self.state.done / self.plan.total)
        rows, losses, due = self._gradients()
        self._check(losses)
        self._step()
        seconds = time.monotonic() - started
        self._count(rows, losses, seconds)
        self.forecaster.updated(self.state, seconds)
        shown = sum(losses.values())
        progress.advance(
            rows, f"loss {shown:.3f}" + ("" if self.state.score is None else f", best {self.state.score:.4f}")
        )
        if self.evaluate is not None and self.plan.evaluates_after(self.state.done):
            self._evaluate()
        if due and self.state.done < self.plan.total:
            self._save()

    def _gradients(self) -> tuple[int, dict[str, float], bool]:
        """Sum this update's gradients; returns its rows, its losses, and whether a checkpoint is due."""
        batches = self.plan.batches(self.state.done)
        rows = sum(len(batch) for batch in batches)
        self.learner.begin()
        sums: dict[str, Tensor] = {}
        later = self.plan.batches(self.state.done + 1) if self.state.done + 1 < self.plan.total else []
        for batch, then in zip(batches, [*batches[1:], *later[:1], None], strict=False):
            for name, loss in self._share_of(batch, rows, then).items():
                sums[name] = sums[name] + loss if name in sums else loss
        names = list(sums)
        wants = torch.tensor(float(self.processes.is_main and self._checkpoint_due()), device=self.processes.device)
        values = self.processes.sum_gradients(self.learner.parameters, torch.stack([*sums.values(), wants]).float())
        norm = self.learner.norm().float()
        *told, due, self.norm = torch.cat([values, norm[None]]).tolist()  # the one wait for a GPU
        return rows, dict(zip(names, told, strict=True)), due > 0

    def _share_of(self, batch: NDArray[np.int64], rows: int, then: NDArray[np.int64] | None) -> dict[str, Tensor]:
        """Add the gradients of this process's share of a batch; the losses come back weighted as they were added."""
        mine, others = self._mine(batch), None if then is None else self._mine(then)
        weight = len(mine) / rows if self.processes.rank < len(batch) else 0.0
        tensors = self.batches(mine, others)
        with self.learner.running():
            losses = self.objective(self.model, tensors)
            weighted = {name: loss.float() * weight for name, loss in losses.items()}
            self.learner.add_gradients(torch.stack(list(weighted.values())).sum())
        return {name: loss.detach() for name, loss in weighted.items()}

    def _mine(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """This process's share of a batch.

        A process without one runs a row that weighs nothing: every process must have the same gradients to sum.
        """
        mine = batch[self.processes.rank :: self.processes.count]
        return mine if len(mine) else batch[:1]

    def _check(self, losses: Mapping[str, float]) -> None:
        """Stop at a loss that is not a number, before it reaches the weights."""
        broken = [name for name, loss in losses.items() if not math.isfinite(loss)]
        if broken:
            called = "the task's loss" if broken[0] == TASK else f"the loss {broken[0]}"
            self._fail(f"{called} became {losses[broken[0]]}")

    def _fail(self, what: str) -> None:
        rows = rows_to_blame(self.examples, self.plan.batches(self.state.done), self._breaks)
        kept = f"the checkpoint is kept that was saved after update {self._saved[1]}"
        teacher = teacher_to_blame(self.objective.teachers(), map(self.batches, self.plan.batches(self.state.done)))
        raise CompressError(
            f"{what} at update {self.state.done + 1} of {self.plan.total}, {rows}; "
            + (f"{teacher} itself answers what is no number; " if teacher else "")
            + f"{kept if self._saved[1] else 'no checkpoint was due before'}.",
            hint=self._advice(teacher),
        )

    def _advice(self, teacher: str | None) -> str:
        if teacher:
            return f"look at {teacher}, or take another; precision: fp32 helps where only its numbers are too large"
        weight = "a smaller weight for this loss, " if isinstance(self.settings, Distill) else ""
        return f"look at these rows; or try a smaller learning_rate, {weight}precision: fp32"

    def _breaks(self, indices: NDArray[np.int64]) -> bool:
        """Whether these examples give a loss that is no number, without dropout."""
        self.model.train(False)
        with torch.no_grad(), self.learner.running():
            losses = self.objective(self.model, self.batches(indices))
        return not all(bool(torch.isfinite(loss)) for loss in losses.values())

    def _step(self) -> None:
        if not math.isfinite(self.norm):
            self._fail(f"the gradient's norm became {self.norm}")
        self.learner.step(self.plan.factor(self.state.done), self.norm, self.settings.clip)

    def _count(self, rows: int, losses: Mapping[str, float], seconds: float) -> None:
        state = self.state
        state.done, state.rows, state.seconds = state.done + 1, state.rows + rows, state.seconds + seconds
        state.add_losses(losses)
        rate = self.settings.learning_rate * self.plan.factor(state.done - 1)
        self.processes.log(
            {**{f"loss/{name}": loss for name, loss in losses.items()}, "learning_rate": rate}, state.done
        )

    def _evaluate(self) -> None:
        """Score the model on the main process; keep its weights where they are the best so far.

        What is scored before the objective settles is written down and does not compete.
        """
        assert self.evaluate is not None
        started = time.monotonic()
        score = math.nan
        if self.processes.is_main:
            self.model.train(False)
            with torch.no_grad(), as_they_are(self.compiles):  # in full precision, as the result will be scored
                score = self.evaluate(self.model)
        score = self.processes.from_main(score)
        state = self.state
        competes = self.objective.settles() or state.done == self.plan.total
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
        self.state = State.of(checkpoint.state)
        self._saved = (time.monotonic(), self.state.done)
        self.learner.put(checkpoint.tensors)
        states = under("random.", checkpoint.tensors)
        if len(states["cpu"]) == self.processes.count:
            self.processes.set_random_states(states)
        else:
            console.warn(
                f"the checkpoint comes from {len(states['cpu'])} processes: this goes on, but not bit for bit."
            )
        console.note(f"going on from the checkpoint at update {self.state.done} of {self.plan.total}")
