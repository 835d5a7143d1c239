"""Vocabulary pruning: removes the word pieces that a task's texts do not use, and positions that it cannot reach.

Most parameters of a small encoder are word vectors, most of which belong to pieces that occur in no text of the task
(Abdaoui et al., "Load What You Need", 2020, arXiv:2010.05609).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.data.tokenizer import whole_texts
from compress.errors import ModelError
from compress.model_history import VocabularyInfo
from compress.model_info import TaskInfo, read_info
from compress.models.load_save import load_model, load_tokenizer
from compress.models.replace_tokenizer_json import replace_tokenizer_json
from compress.prune.vocabulary.embedding_rows import config_ids, position_count, trim_embeddings
from compress.prune.vocabulary.task_texts import TaskTexts
from compress.prune.vocabulary.tokenizer_subset import check_rule, rule_text, select_pieces
from compress.recipe.student_schema import Vocabulary
from compress.tasks.base import Row
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
    texts = TaskTexts(task, fast_tokenizer(model.config, tokenizer))
    table = check_rule(tokenizer, rule)
    before = whole_texts(table.content)
    counts = np.zeros(max(table.every) + 1, np.int64)
    for rows in corpus.values():
        for ids in texts.pieces(rows, before):
            counts += np.bincount(ids, minlength=len(counts))
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
    pruned = trim_embeddings(model, kept, longest)
    info = VocabularyInfo(
        rule=rule_text(rule),
        pieces_before=len(table.every),
        pieces=len(kept),
        positions_before=position_count(model),
        positions=position_count(pruned),
        changed=changed,
    )
    return pruned, fewer, info
