"""torch.compile for the parts of layers that no hook observes, with few distinct shapes."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from transformers import PreTrainedModel

from compress.models.encoder_parts import family_of, layers_of

MULTIPLE = 32
"""Batches are padded to a multiple of this length (or to the longest), since each is compiled separately."""

MAX_GRAPHS = 64
"""Compiled graphs per part; beyond that torch falls back to eager execution."""


@contextmanager
def compile_layers(models: Iterable[PreTrainedModel]) -> Iterator[None]:
    """Compile the feed-forward and output parts of the models' layers within the block, on first use.

    These contain most operations that are not matrix products (activation, dropout, sums, normalization), and no loss
    observes them: queries, keys, values and layer outputs are captured by hooks, which a compiled layer would not call.
    """
    parts = [part for model in models for part in compilable_parts(model)]
    import torch._dynamo.config  # takes a second, so only where something is compiled

    with torch._dynamo.config.patch(recompile_limit=MAX_GRAPHS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not")  # read by torch
        for part in parts:
            part.compile(dynamic=False)
        try:
            yield
        finally:
            for part in parts:
                part._compiled_call_impl = None


def compilable_parts(model: PreTrainedModel) -> list[nn.Module]:
    """Return the modules to compile: feed-forward and output parts of layers without an observed module."""
    family = family_of(model)
    observed = [path for path in (family.query, family.key, family.value, family.query_key_value) if path]
    paths = {path.rpartition(".")[0] for path in (family.attention_output, family.ffn_in, family.ffn_out)} - {""}
    paths = {path for path in paths if not any(name.startswith(f"{path}.") for name in observed)}
    return [layer.get_submodule(path) for layer in dict.fromkeys(layers_of(model)) for path in sorted(paths)]


def eager_only(compiled: bool) -> AbstractContextManager[None]:
    """Disable compilation and compiled code within the block: for evaluations, whose types and shapes differ."""
    if not compiled:
        return nullcontext()  # torch would load its compiler
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance
