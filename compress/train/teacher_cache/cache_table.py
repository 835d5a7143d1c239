"""Teacher outputs of a batch as one dictionary of tensors: parts of batches, and their assembly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compress.batch_arrays import INDEX
from compress.models.forward_hooks import Captured, LayerParts
from compress.train.distillation.teachers import ModelOutputs
from compress.train.objective import Batch
from compress.train.teacher_cache.cache_file import CachedTensor, Indices
from compress.train.teacher_cache.cache_plan import Key

TeacherTensors = dict[Key, Tensor]
"""All teacher outputs of a batch, each (examples, [tokens,] ...)."""

Selected = NDArray[np.bool_]
"""A mask of a batch's examples."""


def flatten(answers: ModelOutputs, seen: Captured) -> TeacherTensors:
    """Return all tensors by key, with examples and tokens as first dimensions."""
    tensors: TeacherTensors = {(None, name): tensor for name, tensor in answers.items()}
    for layer, parts in seen.items():
        for part, tensor in parts.items():
            tensors[layer, part] = tensor if part == "hidden" else tensor.transpose(1, 2)
    return tensors


def unflatten(tensors: TeacherTensors, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
    """Invert `flatten`, for the wanted layers."""
    answers = {name: tensor for (layer, name), tensor in tensors.items() if layer is None}
    seen: Captured = {layer: {} for layer in wanted}
    for (layer, part), tensor in tensors.items():
        if layer is not None:
            seen[layer][part] = tensor if part == "hidden" else tensor.transpose(1, 2)
    return answers, seen


def sub_batch(batch: Batch, rows: Indices) -> Batch:
    """Return the batch of a subset of the examples, with the same width."""
    count = len(batch[INDEX])
    if len(rows) == count:
        return batch
    return {name: index_rows(tensor, rows) for name, tensor in batch.items() if tensor.shape[:1] == (count,)}


def index_rows(tensor: Tensor, rows: Indices) -> Tensor:
    """Return rows of a tensor, on whichever device it is."""
    return tensor[torch.from_numpy(rows).to(tensor.device)]


def assemble(
    key: Key,
    cached: CachedTensor,
    index: Indices,
    present: Selected,
    computed: Sequence[tuple[Indices, TeacherTensors]],
    batch: Batch,
) -> Tensor:
    """Return one tensor for the whole batch: cached values where present, else those just computed."""
    known, inputs = present & cached.has_slot(index), batch["input_ids"]
    if not known.any() and len(computed) == 1:
        return computed[0][1][key]
    bits = torch.from_numpy(cached.read(index[known], inputs.shape[1]))
    read = bits.view(cached.form.torch_dtype).to(inputs.device)
    if known.all():
        return read
    values = read.new_empty((len(index), *read.shape[1:]))
    _set_rows(values, np.flatnonzero(known), read)
    for rows, outputs in computed:
        fresh = np.flatnonzero(~known[rows])
        _set_rows(values, rows[fresh], index_rows(outputs[key], fresh))
    return values


def _set_rows(tensor: Tensor, rows: Indices, values: Tensor) -> None:
    tensor[torch.from_numpy(rows).to(tensor.device)] = values
