"""Vocabulary pruning: removes the word pieces that a task's texts do not use, and positions that it cannot reach."""

import copy
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.data.tokenizer_subset import rule_text
from compress.model_folder.model_history import VocabularyInfo
from compress.model_folder.model_info import TaskInfo, read_info
from compress.models.encoder_parts import base_of, family_of, word_embeddings
from compress.models.load_save import load_model, load_tokenizer
from compress.models.nonuniform_models import from_config
from compress.recipe.student_schema import Vocabulary
from compress.tasks.base import Row
from compress.train.core.training_data import fast_tokenizer
from compress.train.piece_choice import choose_pieces
from compress.train.save_trained import TrainedModel, save_trained_model

MANY_CHANGED = 0.5
"""Share of rows of select that are tokenized differently from which there is a warning."""


def prune_vocabulary(
    source: Path,
    data: Path,
    rule: Vocabulary,
    longest: int | None,
    work: Path,
    *,
    unlabelled_rows: Sequence[Row] = (),
    console: Console | None = None,
) -> TrainedModel:
    """Write the model folder of ``source`` with fewer word pieces and positions to ``work``; no training.

    Args:
        source: the model folder to prune.
        data: a prepared data folder.
        rule: which pieces stay.
        longest: tokens of the longest text that the model has to read; None keeps all positions.
        work: receives the result; the files of a killed attempt are removed first.
        unlabelled_rows: further rows whose pieces count as those of train.
        console: where the result is shown.
    """
    shutil.rmtree(work, ignore_errors=True)
    roles = load_prepared(data)
    task = roles.info.task_info
    model, tokenizer = load_model(source, task), load_tokenizer(source)
    corpus: dict[str, Sequence[Row]] = {"train": roles.rows("train"), UNLABELLED: unlabelled_rows}
    held: dict[str, Sequence[Row]] = {"select": roles.rows("select"), "test": roles.rows("test")}
    pruned, fewer, info = prune_vocabulary_from_model(model, tokenizer, corpus, task, rule, longest, held=held)
    shares = ", ".join(f"{role} {share:.1%}" for role, share in info.changed.items())
    console = console or Console("quiet")
    console.note(f"vocabulary: {info.pieces_before:,} → {info.pieces:,} pieces; rows tokenized differently: {shares}")
    if (share := info.changed.get("select", 0.0)) > MANY_CHANGED:
        console.warn(
            f"{share:.0%} of the rows of select have words that are split into other pieces than before, as train does"
            " not have them; that costs points: keep more (vocabulary: {keep: N}), or give more texts"
            " (task.data.unlabelled)"
        )
    before = read_info(source)
    record = since_first(before.vocabulary, info) if before.vocabulary else info
    return save_trained_model(pruned, fewer, work, "vocabulary", data, pruning=before.pruning, vocabulary=record)


def since_first(earlier: VocabularyInfo, later: VocabularyInfo) -> VocabularyInfo:
    """Return the record of a model that lost pieces or positions twice, compared with the one before the first time."""
    if later.pieces == later.pieces_before:
        return earlier.model_copy(update={"positions": later.positions})
    return later.model_copy(
        update={"pieces_before": earlier.pieces_before, "positions_before": earlier.positions_before}
    )


def prune_vocabulary_from_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Mapping[str, Sequence[Row]],
    task: TaskInfo,
    rule: Vocabulary,
    longest: int | None,
    *,
    held: Mapping[str, Sequence[Row]] | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, VocabularyInfo]:
    """Return a copy of ``model`` with fewer pieces and positions, its tokenizer, and what was kept.

    Args:
        model: of any family.
        tokenizer: the model's, a fast one.
        corpus: by role the rows whose pieces are counted.
        task: of all rows.
        rule: which pieces stay.
        longest: tokens of the longest text that the model has to read; None keeps all positions.
        held: further rows by role, of which only the share that is tokenized differently is determined.
    """
    tokens = fast_tokenizer(model.config, tokenizer)
    choice = choose_pieces(tokenizer, tokens, config_ids(model), corpus, task, rule, longest, held=held)
    pruned = trim_embeddings(model, choice.kept, longest)
    info = VocabularyInfo(
        rule=rule_text(rule),
        pieces_before=choice.before,
        pieces=len(choice.kept),
        positions_before=position_count(model),
        positions=position_count(pruned),
        changed=choice.changed,
    )
    return pruned, choice.tokenizer, info


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
