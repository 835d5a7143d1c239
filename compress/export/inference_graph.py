"""The graph made for inference: an encoder's outputs from fewer operators than its modules in transformers export to.

One product computes query, key and value of a layer, with the scale of the scores in its weights; the mask is one
subtraction and one product; reshapes have constant targets, so that no operator computes them; and an LSTM is one
operator, which the exporter would unroll over a fixed number of tokens. All operators are standard ones, which
quantizers and other runtimes know.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import bidirectional_mask_function, eager_mask

from compress.errors import ModelError
from compress.models.encoder_parts import base_of, family_of, head_size, layers_of, part
from compress.models.light_embeddings import LightEmbeddings

FUSED, SEPARATE = "compress_fused", "compress_separate"
"""Names in transformers' table of the attention on a fused query, key and value, and on separate ones."""


@contextmanager
def inference_modules(model: PreTrainedModel) -> Iterator[None]:
    """Give a model the modules that export to the fewest operators, and its own ones back on leaving.

    MobileBERT computes query, key and value from different tensors, and ModernBERT by one product already, after which
    positions rotate: both keep their own modules. The mask of ModernBERT's sliding window depends on positions and
    stays as it is.
    """
    family, attention = family_of(model), model.config._attn_implementation
    if not family.has_attention:
        embeddings = base_of(model).get_submodule("embeddings")
        assert isinstance(embeddings, LightEmbeddings)
        with embeddings.folded_weights():
            yield
        return
    for name, function in ((FUSED, _fused_attention), (SEPARATE, _attention)):
        AttentionInterface.register(name, function)
        AttentionMaskInterface.register(name, _mask)
    paths = (family.query, family.key, family.value) if family.query and family.one_attention_input else ()
    layers = {id(layer): layer for layer in layers_of(model)}.values()  # a shared layer is listed for each depth
    projections = [(layer, [(path, part(layer, path)) for path in paths if path]) for layer in layers]
    embeddings = base_of(model).get_submodule("embeddings")
    types = None if family.token_types else getattr(embeddings, "token_type_embeddings", None)
    model.set_attn_implementation(FUSED if paths else SEPARATE)
    try:
        for layer, linears in projections:
            for (path, _), module in zip(linears, _fused(linears, head_size(model)), strict=True):
                layer.set_submodule(path, module)
        if types is not None:
            embeddings.token_type_embeddings = _FirstType(types.weight)
        yield
    finally:
        for layer, linears in projections:
            for path, linear in linears:
                layer.set_submodule(path, linear)
        if types is not None:
            embeddings.token_type_embeddings = types
        model.set_attn_implementation(attention)


def _fused(linears: list[tuple[str, nn.Linear]], size: int) -> list[nn.Module]:
    """Return a query that computes query, key and value as so many heads more, and a key and value without effect."""
    if not linears:
        return []
    query, key, value = (linear for _, linear in linears)
    scale = size**-0.5
    fused = nn.Linear(query.in_features, 3 * query.out_features, device="meta")  # draws no weights
    fused.weight = nn.Parameter(torch.cat([query.weight * scale, key.weight, value.weight]).detach())
    fused.bias = nn.Parameter(torch.cat([query.bias * scale, key.bias, value.bias]).detach())
    return [fused, _Unused(size), _Unused(size)]


class _Unused(nn.Module):
    """Returns a head's width of its input; nothing reads it, so that the exporter removes it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, states: Tensor) -> Tensor:
        return states[..., : self.size]


class _FirstType(nn.Module):
    """Returns the vector of token type 0, which every token has in a family without token types."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.vector = nn.Parameter(vectors[0].detach())

    def forward(self, _types: Tensor) -> Tensor:
        return self.vector


def _fused_attention(
    module: nn.Module, heads: Tensor, _key: Tensor, _value: Tensor, attention_mask: Tensor, **_: Any
) -> tuple[Tensor, Tensor]:
    """Attend with ``heads`` (rows, 3 · heads, tokens, size): scaled queries, keys and values."""
    query, key, value = heads.chunk(3, dim=1)
    return _attention(module, query, key, value, attention_mask, scaling=1.0)


def _attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Return the output (rows, tokens, heads, size) of (rows, heads, tokens, size), and the attention weights."""
    scores = torch.matmul(query, key.transpose(2, 3))
    if scaling != 1.0:
        scores = scores * scaling
    weights = torch.softmax(scores + attention_mask, dim=-1)
    return torch.matmul(weights, value).transpose(1, 2), weights


def _mask(**arguments: Any) -> Tensor | None:
    """Return what is added to the scores (rows, 1, 1, tokens): the lowest number at padding, 0 elsewhere."""
    if arguments["mask_function"] is not bidirectional_mask_function:
        return eager_mask(**arguments)
    dtype = arguments["dtype"]
    mask: Tensor = (arguments["attention_mask"].to(dtype) - 1.0) * torch.finfo(dtype).max
    return mask[:, None, None, :]


def make_reshapes_constant(graph: onnx.GraphProto) -> None:
    """Replace computed targets of reshapes by constants, in place, and remove what computed them.

    A target of 0 copies the input's size of the same axis. Sizes are those that the exporter recorded, in which a free
    size has the name of the axis it comes from.
    """
    values = (*graph.input, *graph.value_info, *graph.output)
    sizes = {value.name: _sizes(value) for value in values}
    for node in graph.node:
        if node.op_type != "Reshape":
            continue
        before, after = sizes.get(node.input[0], []), sizes.get(node.output[0], ["unknown"])
        target = [0 if size in before[axis : axis + 1] else size for axis, size in enumerate(after)]
        if all(isinstance(size, int) for size in target):
            name = f"{node.output[0]}_shape"
            graph.initializer.append(numpy_helper.from_array(np.array(target, dtype=np.int64), name))
            node.input[1] = name
            del node.attribute[:]  # allowzero, by which 0 would mean an empty axis
    remove_unused(graph)


def _sizes(value: onnx.ValueInfoProto) -> list[int | str]:
    return [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]


def remove_unused(graph: onnx.GraphProto) -> None:
    """Remove the nodes and initializers that no output depends on."""
    needed = {output.name for output in graph.output}
    for index in reversed(range(len(graph.node))):
        if needed.isdisjoint(graph.node[index].output):
            del graph.node[index]
        else:
            needed.update(graph.node[index].input)
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in needed:
            del graph.initializer[index]


@contextmanager
def lstm_operators(model: nn.Module) -> Iterator[None]:
    """Replace a model's LSTMs within the block by modules that export to one operator each."""
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.LSTM)]
    for name, lstm in found:
        model.set_submodule(name, _LSTMOperator(lstm))
    try:
        yield
    finally:
        for name, lstm in found:
            model.set_submodule(name, lstm)


def refuse_lstm(model: nn.Module, library: str) -> None:
    """Raise ModelError for a model with an LSTM, which torch.export by itself unrolls over a fixed number of tokens."""
    if any(isinstance(module, nn.LSTM) for module in model.modules()):
        hint = "use a student of it, whose head is linear"
        raise ModelError(f"{library} has no LSTM for rows of any length, and this model's head is a BiLSTM.", hint=hint)


class _LSTMOperator(nn.Module):
    """Exports to what an LSTM of one layer and direction computes; called outside of an export it returns zeros.

    Texts are not cut to their lengths by the operator, since OpenVINO ignores that in the backward direction.
    """

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        self.size = lstm.hidden_size
        inputs, recurrent, *biases = (_in_onnx_order(parameter) for parameter in lstm.parameters())
        self.inputs, self.recurrent, self.bias = inputs, recurrent, torch.cat(biases, dim=1)

    def forward(self, states: Tensor) -> tuple[Tensor]:
        """Return the outputs (rows, tokens, size) of states (rows, tokens, width)."""
        rows, tokens, _ = states.shape
        outputs = torch.onnx.ops.symbolic(
            "LSTM",
            (states.transpose(0, 1), self.inputs, self.recurrent, self.bias),
            {"hidden_size": self.size},
            dtype=states.dtype,
            shape=(tokens, 1, rows, self.size),
        )
        return (outputs.squeeze(1).transpose(0, 1),)


def _in_onnx_order(parameter: Tensor) -> Tensor:
    """Return a parameter (1, 4 · size, ...) with the gates in ONNX's order: input, output, forget, cell."""
    into, forget, cell, out = parameter.detach()[None].chunk(4, dim=1)
    return torch.cat([into, out, forget, cell], dim=1)
