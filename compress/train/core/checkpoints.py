"""The state and the result of a training, and the files that make it resumable: checkpoints, best weights, result."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.model_folder.model_history import EvaluationInfo, TrainingInfo
from compress.recipe.training_schema import Training
from compress.storage.atomic_write import apply_umask, atomic_write, new_folder, sync
from compress.train.objective import Examples, Objective


class TrainResult(TrainingInfo):
    """The result of a training; the model holds the weights of update ``best_at``.

    compress.json records the fields of `TrainingInfo`. The others are the time it took and the work it did, from which
    other trainings are estimated.
    """

    seconds: float
    """Time spent, including killed attempts up to their last checkpoint."""
    all_seconds: float = 0.0
    """The same of all trainings of which this one was the best."""
    pieces: int = 0
    """Tokens of all updates, padding included."""
    squares: int = 0
    """Squared padded lengths of all updates."""
    evaluating: float = 0.0
    """Seconds spent on evaluations; included in `seconds`."""
    forecasts: tuple[Mapping[str, Any], ...] = ()
    """Estimates made during the training: their update, seconds, and whether they cover evaluations and the end."""
    epochs: float = 0.0
    """Passes over the rows."""
    ending: str | None = None
    """Why it ended before the last update that the settings allow, or after it with bounds of epochs."""

    @property
    def summary(self) -> str:
        """The result as text: ``0.8911 on select after update 420 of 420, 12,000 rows at 150 rows/s in bf16``."""
        score = "not evaluated" if self.score is None else f"{self.score:.4f} on select after update {self.best_at}"
        rate = f"{self.rows:,} rows at {self.rows / self.seconds:.0f} rows/s in {self.precision}"
        ending = f", {self.epochs:g} epochs ({self.ending})" if self.ending else ""
        return f"{score} of {self.updates}{ending}, {rate}"


@dataclass
class TrainState:
    """The state of a training; what a checkpoint holds besides tensors."""

    done: int = 0
    precision: str = ""
    precision_reason: str | None = None
    rows: int = 0
    seconds: float = 0.0
    best_at: int | None = None
    score: float | None = None
    start_score: float | None = None
    """Of update 0, where it competes."""
    without_better: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    """Sum of each loss since the last evaluation."""
    counted: dict[str, int] = field(default_factory=dict)
    """Number of updates since then in which it was active."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """The evaluations so far, as `EvaluationInfo`."""
    pieces: int = 0
    squares: int = 0
    evaluating: float = 0.0
    forecasts: list[dict[str, Any]] = field(default_factory=list)
    trained_score: float | None = None
    """The best score after an update: that of the start weights competes, but does not count for patience."""
    tail: int | None = None
    """The update from which the rate falls, where that was decided during the training."""
    ending: str | None = None
    """Why it was decided."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> TrainState:
        """Create from a checkpoint; those of older versions lack some fields and have others that are not used."""
        start = next((each["score"] for each in fields.get("history", ()) if each["update"] == 0), None)
        fields = {"trained_score": fields.get("score"), "start_score": start, **fields}
        return cls(**{key: value for key, value in fields.items() if key in cls.__dataclass_fields__})

    def add_losses(self, losses: Mapping[str, float]) -> None:
        """Add the losses of one update; inactive ones are absent."""
        for name, loss in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + loss
            self.counted[name] = self.counted.get(name, 0) + 1

    def mean_losses(self) -> dict[str, float]:
        """Return each loss's mean since the last evaluation, over the updates in which it was active."""
        return {name: total / self.counted[name] for name, total in self.sums.items()}

    def add_evaluation(self, epoch: float, score: float | None) -> None:
        """Add an evaluation, with the mean losses since the one before."""
        losses = {name: float(f"{loss:.6g}") for name, loss in self.mean_losses().items()}
        evaluation = EvaluationInfo(update=self.done, epoch=epoch, score=score, losses=losses)
        self.history.append(evaluation.model_dump())
        self.sums, self.counted = {}, {}


SCHEMA_VERSION = 2
"""2: the identity includes the weights that a training starts with."""
ELSEWHERE = ("checkpoint", "restarts", "cache", "seeds", "grid", "method", "features")
"""Settings that do not change what a single training in the loop computes."""
TENSORS, STATE, RESULT = "tensors.safetensors", "state.json", "result.json"


class CheckpointStore:
    """The folder of one training; files of a training with another identity are refused."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder = folder
        self._identity = identity

    def latest(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return the state and the tensors of the last checkpoint, if any."""
        checkpoints = self._checkpoints()
        if not checkpoints:
            return None
        return self._read_json(checkpoints[-1] / STATE), self._read_tensors(checkpoints[-1] / TENSORS)

    def precision(self) -> str | None:
        """Return the precision of the training that the last checkpoint belongs to, if any."""
        checkpoints = self._checkpoints()
        return self._read_json(checkpoints[-1] / STATE).get("precision") if checkpoints else None

    def save(self, done: int, state: Mapping[str, Any], tensors: Mapping[str, Tensor], best: int | None) -> None:
        """Write a checkpoint, then delete older ones, and best weights other than ``best``."""
        old = self._checkpoints()
        with new_folder(self.folder / f"checkpoint-{done:08d}") as folder:
            save_file(dict(tensors), folder / TENSORS)
            self._write_json(folder / STATE, state)
        for folder in old:
            shutil.rmtree(folder)
        self._drop_best(keep={best})

    def save_best(self, done: int, tensors: Mapping[str, Tensor]) -> None:
        """Write the best weights so far; those that the last checkpoint names remain."""
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / ".best"
        save_file(dict(tensors), aside)
        apply_umask(self.folder, [aside])
        sync(aside)
        aside.replace(self._best(done))
        checkpoints = self._checkpoints()
        named = self._read_json(checkpoints[-1] / STATE).get("best_at") if checkpoints else None
        self._drop_best(keep={done, named})

    def best(self, done: int) -> dict[str, Tensor]:
        """Read the best weights, those of update ``done``."""
        return self._read_tensors(self._best(done))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, then delete everything but the weights it names."""
        self._write_json(self.folder / RESULT, result)
        for folder in self._checkpoints():
            shutil.rmtree(folder)
        self._drop_best(keep={result["best_at"]})

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished training."""
        path = self.folder / RESULT
        return self._read_json(path) if path.is_file() else None

    def _checkpoints(self) -> list[Path]:
        return sorted(self.folder.glob("checkpoint-*"))

    def _best(self, done: int) -> Path:
        return self.folder / f"best-{done:08d}.safetensors"

    def _drop_best(self, keep: set[int | None]) -> None:
        keep_paths = {self._best(done) for done in keep if done is not None}
        for path in self.folder.glob("best-*.safetensors"):
            if path not in keep_paths:
                path.unlink()

    def _write_json(self, path: Path, content: Mapping[str, Any]) -> None:
        document = {"schema_version": SCHEMA_VERSION, "identity": self._identity, **content}
        atomic_write(path, json.dumps(document, indent=2) + "\n")

    def _read_json(self, path: Path) -> dict[str, Any]:
        with self._readable_errors(path):
            content: dict[str, Any] = json.loads(path.read_bytes())
        if (content.get("schema_version"), content.get("identity")) != (SCHEMA_VERSION, self._identity):
            raise ModelError(
                f"{self.folder} holds another training: its settings, data, model, start weights or version differ.",
                hint="use another work folder, or remove this one to train from the start",
            )
        return content

    def _read_tensors(self, path: Path) -> dict[str, Tensor]:
        with self._readable_errors(path):
            return load_file(path)

    @contextmanager
    def _readable_errors(self, path: Path) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, SafetensorError) as error:
            hint = f"remove {self.folder} to train from the start"
            raise ModelError(f"{path} cannot be read: {error}", hint=hint) from error


def training_identity(
    model: PreTrainedModel, objective: Objective, examples: Examples, settings: Training, seed: int
) -> str:
    """Return a digest of everything that determines the result of a training, including the start weights."""
    shapes = [
        (name, list(parameter.shape))
        for module in (model, *objective.modules())
        for name, parameter in module.named_parameters()
    ]
    start_weights = {name: tensor_digest(tensor) for name, tensor in model.state_dict().items()}
    unused = [name for name in ("minutes", "unfreeze") if getattr(settings, name) is None]  # absent in earlier versions
    hashed = settings.model_dump(mode="json", exclude={*ELSEWHERE, *unused})
    parts = [hashed, seed, shapes, objective.identity(), examples.digest(), start_weights]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def tensor_digest(tensor: Tensor) -> str:
    """Return the sha256 of a tensor's bytes."""
    return hashlib.sha256(tensor.detach().cpu().flatten().view(torch.uint8).numpy().data).hexdigest()
