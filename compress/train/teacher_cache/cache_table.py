"""What a teacher says of a batch as one table, of sub_batch of its examples, and put together again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compress.models.forward_hooks import Captured, LayerParts
from compress.train.distillation.teachers import ModelOutputs
from compress.train.objective import Batch
from compress.train.teacher_cache.cache_file import CachedTensor, Places
from compress.train.teacher_cache.cache_plan import Key

TeacherTensors = dict[Key, Tensor]
"""All that a teacher says of a batch; each (examples, [pieces,] ...)."""

Chosen = NDArray[np.bool_]
"""Some of a batch's examples."""


def flat(answers: ModelOutputs, seen: Captured) -> TeacherTensors:
    """Everything under its key, with examples and pieces in front."""
    said: TeacherTensors = {(None, name): tensor for name, tensor in answers.items()}
    for layer, parts in seen.items():
        for part, tensor in parts.items():
            said[layer, part] = tensor if part == "hidden" else tensor.transpose(1, 2)
    return said


def unflat(said: TeacherTensors, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
    """The opposite of `flat`, for what is wanted."""
    answers = {name: tensor for (layer, name), tensor in said.items() if layer is None}
    seen: Captured = {layer: {} for layer in wanted}
    for (layer, part), tensor in said.items():
        if layer is not None:
            seen[layer][part] = tensor if part == "hidden" else tensor.transpose(1, 2)
    return answers, seen


def sub_batch(batch: Batch, rows: Places) -> Batch:
    """A batch of sub_batch of the examples, as wide as the assemble."""
    count = len(batch["index"])
    if len(rows) == count:
        return batch
    return {name: index_rows(tensor, rows) for name, tensor in batch.items() if tensor.shape[:1] == (count,)}


def index_rows(tensor: Tensor, rows: Places) -> Tensor:
    """Some rows of a tensor, wherever it is."""
    return tensor[torch.from_numpy(rows).to(tensor.device)]


def assemble(
    key: Key,
    kept: CachedTensor,
    index: Places,
    stand: Chosen,
    asked: Sequence[tuple[Places, TeacherTensors]],
    batch: Batch,
) -> Tensor:
    """One thing about all of a batch: read where it stands, as it was just said where it has no place."""
    known, inputs = stand & kept.has_slot(index), batch["input_ids"]
    if not known.any() and len(asked) == 1:
        return asked[0][1][key]
    bits = torch.from_numpy(kept.get(index[known], inputs.shape[1]))
    read = bits.view(kept.form.torch_dtype).to(inputs.device)
    if known.all():
        return read
    found = read.new_empty((len(index), *read.shape[1:]))
    _put(found, np.flatnonzero(known), read)
    for rows, said in asked:
        fresh = np.flatnonzero(~known[rows])
        _put(found, rows[fresh], index_rows(said[key], fresh))
    return found


def _put(tensor: Tensor, rows: Places, values: Tensor) -> None:
    tensor[torch.from_numpy(rows).to(tensor.device)] = values
