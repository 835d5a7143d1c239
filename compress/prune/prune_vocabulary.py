"""Vocabulary pruning: removes the word pieces that a task's texts do not use, and positions that it cannot reach."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.data.tokenizer import TextTokenizer, whole_texts
from compress.errors import ModelError
from compress.model_folder.model_history import VocabularyInfo
from compress.model_folder.model_info import TaskInfo, read_info
from compress.models.encoder_parts import base_of, family_of, word_embeddings
from compress.models.load_save import load_model, load_tokenizer, replace_tokenizer_json
from compress.models.nonuniform_models import from_config
from compress.prune.tokenizer_subset import check_rule, rule_text, select_pieces
from compress.recipe.student_schema import Vocabulary
from compress.tasks import kind_of
from compress.tasks.base import Encoding, Row
from compress.train.core.training_data import fast_tokenizer
from compress.train.save_trained import TrainedModel, save_trained_model


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
    (console or Console("quiet")).note(
        f"vocabulary: {info.pieces_before:,} → {info.pieces:,} pieces; rows tokenized differently: {shares}"
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
    choice = choose_pieces(model, tokenizer, corpus, task, rule, longest, held=held)
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


@dataclass(frozen=True)
class PieceChoice:
    """The pieces of a tokenizer that are kept."""

    kept: list[int]
    """The old id of each new one."""
    before: int
    """How many there were."""
    counts: NDArray[np.int64]
    """How often each old id occurs."""
    tokenizer: PreTrainedTokenizerBase
    """Of the kept pieces."""
    changed: Mapping[str, float]
    """By role, the share of rows that it splits differently."""


def choose_pieces(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Mapping[str, Sequence[Row]],
    task: TaskInfo,
    rule: Vocabulary | None,
    longest: int | None = None,
    *,
    held: Mapping[str, Sequence[Row]] | None = None,
) -> PieceChoice:
    """Return the pieces that a rule keeps, as in `prune_vocabulary_from_model`; without a rule they are all kept."""
    texts = TaskTexts(task, fast_tokenizer(model.config, tokenizer))
    table = check_rule(tokenizer, rule)
    before = whole_texts(table.content)
    counts = np.zeros(max(table.every) + 1, np.int64)
    for rows in corpus.values():
        for ids in texts.pieces(rows, before):
            counts += np.bincount(ids, minlength=len(counts))
    if rule is None:
        return PieceChoice(list(range(len(counts))), len(table.every), counts, tokenizer, {})
    kept = table.ordered(select_pieces(table, counts, rule, config_ids(model) & table.every))
    fewer = replace_tokenizer_json(tokenizer, table.subset(kept), longest)
    after, changed = whole_texts(json.loads(fewer.backend_tokenizer.to_str())), dict[str, float]()
    for role, rows in {**corpus, **(held or {})}.items():
        if len(rows):
            changed[role] = texts.share_changed(rows, before, after, np.array(kept))
            if rule == "seen" and role in corpus and changed[role]:
                raise ModelError(
                    f"{changed[role]:.2%} of the rows of {role} are tokenized differently with the vocabulary that they"
                    " use: this tokenizer cannot be pruned.",
                    hint="leave vocabulary out",
                )
    return PieceChoice(kept, len(table.every), counts, fewer, changed)


ROWS_AT_ONCE = 1000


class TaskTexts:
    """Finds the texts in rows of any kind, and tokenizes them."""

    def __init__(self, task: TaskInfo, tokens: TextTokenizer) -> None:
        """``tokens`` makes the examples through which a kind names its texts."""
        self._task, self._tokens = task, tokens

    def pieces(self, rows: Sequence[Row], tokenizer: Tokenizer) -> Iterator[NDArray[np.int64]]:
        """Yield the ids of all texts of each row, without special tokens."""
        for start in range(0, len(rows), ROWS_AT_ONCE):
            texts = [self._texts(rows[index]) for index in range(start, min(start + ROWS_AT_ONCE, len(rows)))]
            encoded = iter(tokenizer.encode_batch([text for row in texts for text in row], add_special_tokens=False))
            for row in texts:
                yield np.array([index for _ in row for index in next(encoded).ids], np.int64)

    def share_changed(self, rows: Sequence[Row], before: Tokenizer, after: Tokenizer, kept: NDArray[np.int64]) -> float:
        """Return the share of rows that two tokenizers split differently; ``kept`` has the old id of each new one."""
        pairs = zip(self.pieces(rows, before), self.pieces(rows, after), strict=True)
        return sum(not np.array_equal(old, kept[new]) for old, new in pairs) / len(rows)

    def _texts(self, row: Row) -> list[str]:
        collector = _TextCollector(self._tokens)
        kind_of(self._task).examples(row, self._task, collector)
        return list(collector.texts)


class _TextCollector:
    """An `Encode` that records the texts it is given."""

    def __init__(self, tokens: TextTokenizer) -> None:
        self._tokens = tokens
        self.texts: dict[str, None] = {}

    def __call__(self, text: str, pair: str | None, max_tokens: int) -> Encoding:
        self._add(text, pair)
        return self._tokens(text, pair, max_tokens)

    def windows(self, text: str, pair: str | None, max_tokens: int, overlap: int, limit: int) -> list[Encoding]:
        self._add(text, pair)
        return self._tokens.windows(text, pair, max_tokens, overlap, limit)

    def _add(self, *texts: str | None) -> None:
        self.texts.update(dict.fromkeys(text for text in texts if text is not None))


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
