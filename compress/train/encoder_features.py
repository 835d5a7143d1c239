"""The states of a frozen encoder's last four layers, computed once for each example and read from disk afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.batch_arrays import INDEX
from compress.console import Console
from compress.data.encode import batches_by_length
from compress.models.encoder_parts import base_of, family_of
from compress.models.last_layers_head import last_layers
from compress.recipe.finetune_schema import FEATURE_LAYERS
from compress.train.core.distributed import current_processes
from compress.train.objective import Batch, Examples
from compress.train.teacher_cache.cache_file import CachedTensor, TensorFormat

BATCH = 64


class EncoderFeatures:
    """The features of training examples, in a file that all processes read.

    Batches for encoding follow from the lengths alone, so a resumed training reads the same bits.
    """

    def __init__(self, model: PreTrainedModel, examples: Examples, path: Path, console: Console, label: str) -> None:
        """Encode all ``examples`` on the main process, and store them at ``path``; ``label`` names the progress."""
        processes, ends = current_processes(), np.cumsum(examples.example_lengths)
        shape = (FEATURE_LAYERS * int(model.config.hidden_size),)
        form = TensorFormat(dtype="float32", shape=shape, per_token=True, examples=len(ends))
        if processes.is_main:
            path.parent.mkdir(parents=True, exist_ok=True)
            device = model.device
            nn.Module.to(model, processes.device).train(False)
            _write(model, examples, CachedTensor(path, form, ends, create=True), console, label)
            nn.Module.to(model, device)
        processes.wait()
        self._stored = CachedTensor(path, form, ends)

    def __deepcopy__(self, memo: dict[int, Any]) -> EncoderFeatures:
        """Return the features themselves: replicas of a training read the same file."""
        return self

    def __call__(self, batch: Batch) -> Tensor:
        """Return the features of a batch's examples (examples, tokens, 4 · hidden)."""
        ids = batch["input_ids"]
        return self._stored.read(batch[INDEX].cpu().numpy(), ids.shape[1]).to(ids.device)


def _write(model: PreTrainedModel, examples: Examples, stored: CachedTensor, console: Console, label: str) -> None:
    """Write the features of all examples."""
    names = family_of(model).inputs
    with torch.no_grad(), console.progress(len(stored), f"{label}: encode", "rows") as progress:
        for indices in batches_by_length(examples.example_lengths, BATCH):
            arrays = {name: torch.from_numpy(array) for name, array in examples.batch(indices).items()}
            inputs = {name: arrays[name].to(model.device) for name in names}
            states = base_of(model)(**inputs, output_hidden_states=True).hidden_states
            stored.write(indices, last_layers(states))
            progress.advance(len(indices))
