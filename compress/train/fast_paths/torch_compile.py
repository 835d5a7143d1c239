"""torch.compile for the parts of a layer that nobody looks into, and few shapes for it to compile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from transformers import PreTrainedModel

from compress.models.encoder_parts import family_of, layers_of

MULTIPLE = 32
"""Batches are padded to a multiple of this: each width is compiled by itself."""

GRAPHS = 64
"""Compiled for one part at most; beyond that torch falls back to running it as it is."""


@contextmanager
def compile_layers(models: Iterable[PreTrainedModel]) -> Iterator[None]:
    """Within the block the feed-forward and output parts of the models' layers are compiled when they first run.

    These hold most of what is not a matrix product (activation, dropout, sums, normalisation), and no loss looks into
    them: queries, keys, values and a layer's output are observed through hooks, which a compiled layer would not call.
    """
    parts = [part for model in models for part in compilable_parts(model)]
    import torch._dynamo.config  # a second that only those pay who compile

    with torch._dynamo.config.patch(recompile_limit=GRAPHS):
        for part in parts:
            part.compile(dynamic=False)
        try:
            yield
        finally:
            for part in parts:
                part._compiled_call_impl = None


def compilable_parts(model: PreTrainedModel) -> list[nn.Module]:
    """What of each layer is compiled: the parts around its products that hold none of the observed ones."""
    family = family_of(model)
    seen = [path for path in (family.query, family.key, family.value, family.query_key_value) if path]
    paths = {path.rpartition(".")[0] for path in (family.attention_output, family.ffn_in, family.ffn_out)} - {""}
    alone = [path for path in sorted(paths) if not any(each.startswith(f"{path}.") for each in seen)]
    return [layer.get_submodule(path) for layer in dict.fromkeys(layers_of(model)) for path in alone]


def eager_only(were_compiled: bool) -> AbstractContextManager[None]:
    """Within the block nothing is compiled or runs compiled: for evaluations, whose type and shapes are others."""
    if not were_compiled:
        return nullcontext()  # asking torch would load its compiler
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance
