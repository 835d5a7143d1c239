"""What a training leaves on disk so that it can be killed at any moment: checkpoints, the best weights, the result.

Tensors are safetensors and the rest is JSON; nothing is pickled. Everything is written aside and renamed, so that
what has its name is whole. A checkpoint names the best weights that belong to it, and those stay until a later
checkpoint has taken over.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from compress.atomic_write import atomic_replace_folder, atomic_write, sync
from compress.errors import ModelError
from compress.recipe.training_schema import Training
from compress.train.objective import Examples, Objective

SCHEMA_VERSION = 1
TENSORS, STATE, RESULT = "tensors.safetensors", "state.json", "result.json"


@dataclass(frozen=True)
class Checkpoint:
    """A training as it stood."""

    state: dict[str, Any]
    tensors: dict[str, Tensor]


class CheckpointStore:
    """The folder of one training. ``training_identity`` distinguishes trainings."""

    def __init__(self, folder: Path, training_identity: str) -> None:
        self.folder = folder
        self._identity = training_identity

    def latest(self) -> Checkpoint | None:
        """The last checkpoint, where there is one."""
        found = self._checkpoints()
        if not found:
            return None
        state = self._read_json(found[-1] / STATE)
        return Checkpoint(state, self._read_tensors(found[-1] / TENSORS))

    def save(self, done: int, state: Mapping[str, Any], tensors: Mapping[str, Tensor], best: int | None) -> None:
        """Write a checkpoint; older ones, and best weights that are not ``best``, go once it stands."""
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / ".aside"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        save_file(dict(tensors), aside / TENSORS)
        self._write_json(aside / STATE, state)
        old = self._checkpoints()
        atomic_replace_folder(aside, self.folder / f"checkpoint-{done:08d}")
        for folder in old:
            shutil.rmtree(folder)
        self._drop_best(keep={best})

    def save_best(self, done: int, tensors: Mapping[str, Tensor]) -> None:
        """Write the best weights so far; those that the last checkpoint names stay beside them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / ".best"
        save_file(dict(tensors), aside)
        sync(aside)
        aside.replace(self._best(done))
        found = self._checkpoints()
        named = self._read_json(found[-1] / STATE).get("best_at") if found else None
        self._drop_best(keep={done, named})

    def best(self, done: int) -> dict[str, Tensor]:
        """The weights that were best after so many updates."""
        return self._read_tensors(self._best(done))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result; only the weights it names stay."""
        self._write_json(self.folder / RESULT, result)
        for folder in self._checkpoints():
            shutil.rmtree(folder)
        self._drop_best(keep={result["best_at"]})

    def result(self) -> dict[str, Any] | None:
        """The result of a training that came to its end."""
        path = self.folder / RESULT
        return self._read_json(path) if path.is_file() else None

    def _checkpoints(self) -> list[Path]:
        return sorted(self.folder.glob("checkpoint-*"))

    def _best(self, done: int) -> Path:
        return self.folder / f"best-{done:08d}.safetensors"

    def _drop_best(self, keep: set[int | None]) -> None:
        kept = {self._best(done) for done in keep if done is not None}
        for path in self.folder.glob("best-*.safetensors"):
            if path not in kept:
                path.unlink()

    def _write_json(self, path: Path, content: Mapping[str, Any]) -> None:
        told = {"schema_version": SCHEMA_VERSION, "training_identity": self._identity, **content}
        atomic_write(path, json.dumps(told, indent=2) + "\n")

    def _read_json(self, path: Path) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} cannot be read: {error}", hint=f"remove {self.folder} to train anew") from error
        if (content.get("schema_version"), content.get("training_identity")) != (SCHEMA_VERSION, self._identity):
            raise ModelError(
                f"{self.folder} holds another training: its settings, data or model differ from the ones given.",
                hint="give another work folder, or remove this one to train anew",
            )
        return content

    def _read_tensors(self, path: Path) -> dict[str, Tensor]:
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path} cannot be read: {error}", hint=f"remove {self.folder} to train anew") from error


def training_identity(
    model: PreTrainedModel, objective: Objective, examples: Examples, settings: Training, seed: int
) -> str:
    """Return a digest of everything that changes the result of a training, the weights it starts from included."""
    shapes = [
        (name, list(parameter.shape))
        for module in (model, *objective.modules())
        for name, parameter in module.named_parameters()
    ]
    told = settings.model_dump(mode="json", exclude={"checkpoint", "restarts", "cache"})
    start = {name: tensor_digest(tensor) for name, tensor in model.state_dict().items()}
    every = [told, seed, shapes, objective.identity(), examples.digest(), start]
    return hashlib.sha256(json.dumps(every).encode()).hexdigest()


def tensor_digest(tensor: Tensor) -> str:
    """Return the sha256 of a tensor's bytes."""
    return hashlib.sha256(tensor.detach().cpu().flatten().view(torch.uint8).numpy().data).hexdigest()
