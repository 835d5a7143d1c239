"""Removes rows of word embeddings and positions, and gives the config the new ids."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from compress.models.encoder_parts import base_of, family_of, word_embeddings
from compress.models.nonuniform_models import from_config

ID_SUFFIX = "_token_id"
"""Of the keys of a config that hold ids of pieces."""


def trim_embeddings(model: PreTrainedModel, kept: Sequence[int], longest: int | None) -> PreTrainedModel:
    """Return a copy of the model with the word vectors of these ids, and positions for texts of ``longest`` tokens.

    Of factorised word vectors the rows of the short table are kept; where ``longest`` is None all positions are.
    """
    new = {old: index for index, old in enumerate(kept)}
    config, state = copy.deepcopy(model.config), model.state_dict()
    config.vocab_size = len(kept)
    for key, value in _token_ids(model).items():
        setattr(config, key, [new[each] for each in value] if isinstance(value, list) else new.get(value))
    words = word_embeddings(model)
    tables: dict[nn.Module, torch.Tensor] = {words: words.weight[list(kept)]}
    if (positions := _positions(model)) is not None:
        # Where positions are counted from the id of padding, those before it are never used.
        counted = family_of(model).positions_after_padding
        shift = model.config.pad_token_id - config.pad_token_id if counted else 0
        unused = config.pad_token_id + 1 if counted else 0
        tables[positions] = positions.weight[shift:][: None if longest is None else longest + unused]
        config.max_position_embeddings = len(tables[positions])
    state |= {f"{path}.weight": tables[module].detach() for path, module in model.named_modules() if module in tables}
    with torch.random.fork_rng(devices=[]):  # the weights drawn here are overwritten
        fresh = from_config(type(model), config, model.config._attn_implementation)
    fresh.load_state_dict(state)
    nn.Module.to(fresh, device=model.device, dtype=model.dtype)
    fresh.train(model.training)
    return fresh


def position_count(model: PreTrainedModel) -> int | None:
    """Return the rows of a model's position table; None for families without one."""
    positions = _positions(model)
    return None if positions is None else positions.num_embeddings


def config_ids(model: PreTrainedModel) -> set[int]:
    """Return the ids of pieces that a model's config names."""
    return {index for value in _token_ids(model).values() for index in _as_list(value)}


def _token_ids(model: PreTrainedModel) -> dict[str, Any]:
    """Return the ids in a model's config by key, of those that have a word vector."""
    rows, entries = range(word_embeddings(model).num_embeddings), model.config.to_dict().items()
    return {
        key: value
        for key, value in entries
        if key.endswith(ID_SUFFIX) and value is not None and all(each in rows for each in _as_list(value))
    }


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _positions(model: PreTrainedModel) -> nn.Embedding | None:
    """Return the table of learned positions; None for families without one."""
    path = family_of(model).positions
    if path is None:
        return None
    table = base_of(model).get_submodule(path)
    assert isinstance(table, nn.Embedding)
    return table
