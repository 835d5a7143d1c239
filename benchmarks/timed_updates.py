"""Training updates to time: random rows, random models, and a timestamp at the start of every update."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel

from compress.batch_arrays import ATTENTION_MASK, BATCH_POSITIONS, INPUT_ARRAYS, BatchArray
from compress.console import Console
from compress.data.splits.row_store import Origin, train_origin
from compress.model_folder.model_info import TaskInfo
from compress.recipe.training_schema import Training
from compress.tasks.base import Arrays
from compress.train.loop import train
from compress.train.objective import Batch, Examples, Losses, Objective

VOCABULARY, MAX_TOKENS = 30_522, 128
TASK = TaskInfo(
    name="drawn", kind="classification", text=("text",), labels=("a", "b"), metric="accuracy", max_length=MAX_TOKENS
)
MINILM = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}


def bert(layers: int, width: Mapping[str, int]) -> PreTrainedModel:
    """A classifier with random weights: as fast as a trained one."""
    sizes: dict[str, Any] = {"num_hidden_layers": layers, **width}
    return BertForSequenceClassification(BertConfig(**sizes))


class RandomRows:
    """Rows of random tokens, common ones more often; so many each, or about so many as sentences have."""

    def __init__(self, rows: int, length: int, *, even: bool = True) -> None:
        random = np.random.default_rng(0)
        spread = random.gamma(4.0, length / 4.0, rows).astype(np.int64).clip(4, 64)
        self.lengths: NDArray[np.int64] = np.full(rows, length) if even else spread
        self.example_lengths, self.cacheable = self.lengths, rows
        self.ids = random.zipf(1.2, (rows, self.lengths.max())) % VOCABULARY

    def arrays(self) -> dict[str, BatchArray]:
        """Those that every kind has."""
        return {array.name: array for array in (*INPUT_ARRAYS, ATTENTION_MASK, *BATCH_POSITIONS)}

    def digest(self) -> str:
        """One draw."""
        return "drawn"

    def vocabulary(self) -> NDArray[np.int64]:
        """The tokens that occur."""
        return np.unique(np.append(self.ids, 0))

    def origins(self, indices: NDArray[np.int64]) -> list[Origin]:
        """They are rows."""
        return [train_origin(row) for row in indices.tolist()]

    def batch(self, indices: NDArray[np.int64]) -> Arrays:
        """As wide as the longest."""
        lengths = self.lengths[indices]
        mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        ids = self.ids[indices, : mask.shape[1]] * mask
        others = {"labels": indices % 2, "index": indices}
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(mask), **others}


class Timed(Objective):
    """An objective that looks at the clock when an update begins."""

    def __init__(self, objective: Objective, clock: Callable[[], float]) -> None:
        self._objective, self._clock = objective, clock
        self.began: list[float] = []

    def modules(self) -> Sequence[nn.Module]:
        """Return those of the objective."""
        return self._objective.modules()

    def identity(self) -> str:
        """Return that of the objective."""
        return self._objective.identity()

    def is_selectable(self) -> bool:
        """Return what the objective returns."""
        return self._objective.is_selectable()

    def has_independent_rows(self) -> bool:
        """Return what the objective returns."""
        return self._objective.has_independent_rows()

    def teachers(self) -> Sequence[PreTrainedModel]:
        """Return those of the objective."""
        return self._objective.teachers()

    def begin(self, progress: float, update: int = 0) -> None:
        """Store the time at which an update begins, and the one before it has ended."""
        self.began.append(self._clock())
        self._objective.begin(progress, update)

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Return the losses of the objective."""
        return self._objective(model, batch)

    @property
    def taken(self) -> list[float]:
        """Seconds of each update but the last, whose end is not seen."""
        return [float(seconds) for seconds in np.diff(self.began)]


def trained(
    model: PreTrainedModel, objective: Objective, examples: Examples, settings: Training, clock: Callable[[], float]
) -> list[float]:
    """Seconds of each update of the project's loop but the last."""
    timed = Timed(objective, clock)
    with tempfile.TemporaryDirectory() as folder:
        train(model, timed, examples, settings, seed=0, work=Path(folder), console=Console("quiet"))
    return timed.taken


def clock_of(device: torch.device) -> Callable[[], float]:
    """The process's own time on a CPU with one thread, which others hardly change; elsewhere the wall's."""

    def after_the_device() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    if device.type == "cuda":
        return after_the_device
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter
