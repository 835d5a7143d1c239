"""Files of a training that make it resumable: checkpoints, the best weights, the result.

Tensors are stored as safetensors, everything else as JSON; nothing is pickled. Files are written under another name and
renamed, so that a file that exists is complete. A checkpoint names the best weights that belong to it, and these are
deleted only after a later checkpoint was written.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.recipe.training_schema import Training
from compress.storage.atomic_write import apply_umask, atomic_write, new_folder, sync
from compress.train.objective import Examples, Objective

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
