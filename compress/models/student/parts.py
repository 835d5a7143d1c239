"""Parts of a model: some of its layers, and the first heads and neurons of each, computed without being copied.

Yu et al., "Slimmable Neural Networks", 2019 (arXiv:1812.08928); Hou et al., "DynaBERT: Dynamic BERT with Adaptive Width
and Depth", 2020 (arXiv:2004.04037). A model whose most important units come first contains many smaller ones, which
share its weights: training one of them trains the others too.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PreTrainedModel

from compress.families import Family
from compress.model_shapes import choose_layers
from compress.models.encoder_parts import base_of, family_of, head_channels, head_size, layer_shapes, layers_of
from compress.models.nonuniform_models import set_head_count
from compress.models.student.build_student import build_student
from compress.models.student.slicing import Importance, uniform_importance
from compress.recipe.student_schema import Part, Student


def order_units(model: PreTrainedModel, importance: Importance) -> None:
    """Reorder the heads and neurons of each layer, the most important ones first; the outputs stay the same."""
    size = head_size(model)
    for layer, heads, neurons in zip(layers_of(model), importance.heads, importance.neurons, strict=True):
        orders = {
            "heads": torch.tensor(head_channels(_descending(heads), size)),
            "neurons": torch.tensor(_descending(neurons)),
        }
        for name, units, dim in _parameters_of_units(family_of(model)):
            parameter = layer.get_parameter(name)
            with torch.no_grad():
                parameter.copy_(parameter.index_select(dim, orders[units].to(parameter.device)))


def take_part(model: PreTrainedModel, part: Part, piece_counts: Tensor | None = None) -> PreTrainedModel:
    """Return a part of a model as a model of its own, with copies of the weights and all pieces.

    ``piece_counts``: as of `build_student`.
    """
    heads, neurons = zip(*layer_shapes(model), strict=True)
    first_ones = replace(uniform_importance(model), heads=_falling(heads), neurons=_falling(neurons))
    student = Student(layers=tuple(part_layers(model, part)), heads=part.heads, ffn=part.ffn, factors=part.factors)
    return build_student(model, student, importance=first_ones, piece_counts=piece_counts)


def _falling(counts: Sequence[int]) -> list[Tensor]:
    """Return importance by which the first units of each layer are the most important ones."""
    return [torch.arange(count, 0, -1, dtype=torch.float32) for count in counts]


def part_layers(model: PreTrainedModel, part: Part) -> list[int]:
    """Return the layers of a part, evenly spread up to the last one."""
    return choose_layers(part.layers, len(layers_of(model)))


def run_part(model: PreTrainedModel, batch: Mapping[str, Tensor], part: Part) -> Mapping[str, Tensor]:
    """Return what a part of a model gives out for a batch; gradients reach the weights that it shares."""
    family, size = family_of(model), head_size(model)
    inputs = {name: value for name, value in batch.items() if name in family.inputs}
    widths = {"heads": part.heads * size, "neurons": part.ffn}
    with _only_layers(model, part_layers(model, part)) as layers:
        narrowed: dict[str, Tensor] = {}
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        with _head_counts(model, layers, part.heads, size):
            for layer in layers:
                for name, units, dim in _parameters_of_units(family):
                    parameter = layer.get_parameter(name)
                    narrowed[names[id(parameter)]] = parameter.narrow(dim, 0, widths[units])
            outputs: Mapping[str, Tensor] = functional_call(model, narrowed, kwargs=inputs)
    return outputs


def _descending(importance: Tensor) -> list[int]:
    order: list[int] = torch.argsort(importance, descending=True, stable=True).tolist()
    return order


def _parameters_of_units(family: Family) -> Iterator[tuple[str, Literal["heads", "neurons"], int]]:
    """Yield the parameters of a layer that have a place for each unit: names, units, and in which dimension."""
    for path in (family.query, family.key, family.value):
        for name in ("weight", "bias"):
            yield f"{path}.{name}", "heads", 0
    yield f"{family.attention_output}.weight", "heads", 1
    yield f"{family.ffn_in}.weight", "neurons", 0
    yield f"{family.ffn_in}.bias", "neurons", 0
    yield f"{family.ffn_out}.weight", "neurons", 1


@contextmanager
def _only_layers(model: PreTrainedModel, chosen: Sequence[int]) -> Iterator[list[nn.Module]]:
    """Within the block, the model has only these layers."""
    base, path = base_of(model), family_of(model).layers
    stack = base.get_submodule(path)
    layers = [layer for index, layer in enumerate(stack.children()) if index in set(chosen)]
    base.set_submodule(path, nn.ModuleList(layers))
    try:
        yield layers
    finally:
        base.set_submodule(path, stack)


@contextmanager
def _head_counts(model: PreTrainedModel, layers: Sequence[nn.Module], heads: int, size: int) -> Iterator[None]:
    """Within the block, the attention of these layers has so many heads."""
    family = family_of(model)
    before = [int(getattr(layer.get_submodule(family.attention), family.heads_key)) for layer in layers]
    try:
        for layer in layers:
            set_head_count(layer, family, heads, size)
        yield
    finally:
        for layer, count in zip(layers, before, strict=True):
            set_head_count(layer, family, count, size)
