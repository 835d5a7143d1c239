"""The outputs of a teacher as one mapping of tensors: its own outputs, and parts of its layers."""

from __future__ import annotations

from torch import Tensor

from compress.models.forward_hooks import Captured, LayerParts
from compress.train.distillation.teachers import ModelOutputs
from compress.train.teacher_cache.cache_file import LAYER, layer_key

TeacherTensors = dict[str, Tensor]
"""All teacher outputs of a batch, each (examples, [tokens,] ...): outputs by name, parts of layers by `layer_key`."""


def flatten(answers: ModelOutputs, seen: Captured) -> TeacherTensors:
    """Return all tensors by key, with examples and tokens as first dimensions."""
    layers = {
        layer_key(layer, part): tensor if part == "hidden" else tensor.transpose(1, 2)
        for layer, parts in seen.items()
        for part, tensor in parts.items()
    }
    return {**answers, **layers}


def unflatten(tensors: TeacherTensors, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
    """Invert `flatten`, for the wanted layers."""
    answers = {key: tensor for key, tensor in tensors.items() if not key.startswith(LAYER)}
    seen: Captured = {layer: {} for layer in wanted}
    for layer, parts in wanted.items():
        for part in parts:
            tensor = tensors[layer_key(layer, part)]
            seen[layer][part] = tensor if part == "hidden" else tensor.transpose(1, 2)
    return answers, seen
