"""What the vectors of a student without attention start as: what its fine-tuned teacher makes of pieces and n-grams.

Each piece is read by the teacher alone, and the mean of its states is kept along their principal directions (Tulkens
and van Dongen, Model2Vec, 2024), there with vectors of a sentence encoder, here of the task's own teacher. A piece's
weight falls with its frequency (Arora et al., "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", 2017).
A frequent n-gram starts with what the teacher makes of it beyond the mean of its pieces.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from compress.data.tokenizer import whole_texts
from compress.model_folder.model_info import TaskInfo
from compress.models.embedding_model import mean_pool, token_states
from compress.models.encoder_parts import base_of, family_of
from compress.models.light_embeddings import NgramHash
from compress.ngram_hash import HASHES
from compress.recipe.student_schema import LightStudent
from compress.storage.atomic_write import atomic_write
from compress.tasks.base import Row, evenly_spaced
from compress.train.core.distributed import current_processes, returned
from compress.train.core.seed_restarts import FOLDER, TrainContext
from compress.train.core.training_data import fast_tokenizer
from compress.train.piece_choice import PieceChoice, TaskTexts

SAMPLE = 10_000
"""Rows of train in which n-grams are counted."""
LEAST_COUNT = 2
"""An n-gram that occurs less often in them starts as zeros."""
MOST_NGRAMS = 20_000
"""The most frequent ones, which the teacher reads."""
MOST_COUNTED = 2_000_000
"""Beyond so many n-grams those that have occurred once are forgotten."""
RARITY = 1e-3
"""A piece of this share of all pieces weighs half as much as one that hardly occurs."""
BATCH = 256
"""Pieces, or n-grams, that the teacher reads at once."""

Ngram = tuple[int, ...]


def stored_start(
    student: LightStudent,
    config: PreTrainedConfig,
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    choice: PieceChoice,
    rows: Sequence[Row],
    task: TaskInfo,
    context: TrainContext,
) -> Mapping[str, Tensor]:
    """Return what `start_vectors` does; a training that goes on after a kill reads it from the work folder."""
    path = context.work / FOLDER / "start.safetensors"
    if path.is_file():
        return load(path.read_bytes())
    ngrams = frequent_ngrams(rows, task, teacher, tokenizer, student.ngrams) if "ngrams" in student.start else {}
    kept = {*choice.kept}
    ngrams = {ngram: count for ngram, count in ngrams.items() if kept.issuperset(ngram)}
    start = start_vectors(student, config, teacher, tokenizer, choice, ngrams)
    if start:
        context.console.note(f"{context.step}: the teacher read {len(choice.kept):,} pieces, {len(ngrams):,} n-grams")
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, save({name: values.contiguous() for name, values in start.items()}))
    return start


def start_vectors(
    student: LightStudent,
    config: PreTrainedConfig,
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    choice: PieceChoice,
    ngrams: Mapping[Ngram, int],
) -> dict[str, Tensor]:
    """Return what the student's embeddings start as, by the names of their weights; what is left out is random.

    Args:
        student: its `start` says what is left out.
        config: of the student.
        teacher: a fine-tuned model.
        tokenizer: the teacher's.
        choice: the pieces that the student has.
        ngrams: how often n-grams of the teacher's ids occur.
    """
    if "pieces" not in student.start:
        return {}
    kept = torch.as_tensor(choice.kept)
    counts = torch.as_tensor(choice.counts)[kept].float()
    rarity = RARITY / (RARITY + counts / counts.sum().clamp(min=1))
    with returned(teacher):
        nn.Module.to(teacher, current_processes().device).train(False)
        read = Reader(teacher, tokenizer)
        states, surplus = read([(index,) for index in choice.kept]), read([*ngrams])
    width = config.factors or config.hidden_size
    mean = (states * counts[:, None]).sum(dim=0) / counts.sum().clamp(min=1)
    centred = states - mean
    directions = principal_directions(centred, rarity) if "components" in student.start else _random_directions(centred)
    directions = F.pad(directions[:, :width], (0, max(0, width - len(directions))))
    scale = (centred @ directions).norm(dim=1).mean().clamp(min=1e-6)
    start = {"word_embeddings.weight": centred @ directions / scale}
    if "frequencies" in student.start:
        start["piece_weights.weight"] = rarity[:, None]
    if ngrams:
        own = {index: number for number, index in enumerate(choice.kept)}
        ids = [[own[index] for index in ngram] for ngram in ngrams]
        means = torch.stack([centred[each].mean(dim=0) for each in ids])
        beyond = (surplus - mean - means) @ directions / scale
        start["ngram_embeddings.weight"] = in_buckets(config, ids, beyond, [*ngrams.values()])
    return start


class Reader:
    """The mean of the last states that a teacher has of a sequence of pieces, between its special tokens."""

    def __init__(self, teacher: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.encoder, self.pad = base_of(teacher), int(tokenizer.pad_token_id or 0)
        self.inputs, self.device = family_of(teacher).inputs, teacher.device
        self.before, self.after = (
            [] if index is None else [int(index)] for index in (tokenizer.cls_token_id, tokenizer.sep_token_id)
        )

    def __call__(self, sequences: Sequence[Ngram]) -> Tensor:
        """Return (sequences, hidden)."""
        order = sorted(range(len(sequences)), key=lambda index: len(sequences[index]))
        result = torch.zeros(len(sequences), int(self.encoder.config.hidden_size))
        for begin in range(0, len(order), BATCH):
            chosen = order[begin : begin + BATCH]
            result[chosen] = self._states([sequences[index] for index in chosen])
        return result

    def _states(self, sequences: Sequence[Ngram]) -> Tensor:
        longest = max(map(len, sequences)) + len(self.before) + len(self.after)
        ids = torch.full((len(sequences), longest), self.pad)
        mask, inner = torch.zeros_like(ids), torch.zeros_like(ids)
        for row, sequence in enumerate(sequences):
            whole = [*self.before, *sequence, *self.after]
            ids[row, : len(whole)] = torch.tensor(whole)
            mask[row, : len(whole)] = 1
            inner[row, len(self.before) : len(self.before) + len(sequence)] = 1
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        with torch.no_grad(), token_states(self.encoder):
            outputs = self.encoder(**{name: arrays[name].to(self.device) for name in self.inputs})
        return mean_pool(outputs.last_hidden_state.float().cpu(), inner)


def principal_directions(vectors: Tensor, weights: Tensor) -> Tensor:
    """Return the principal directions (hidden, hidden) of vectors (pieces, hidden) with these weights."""
    weighted = vectors * weights[:, None]
    directions: Tensor = torch.linalg.eigh(weighted.T @ weighted).eigenvectors.flip(1)
    return directions


def _random_directions(vectors: Tensor) -> Tensor:
    size = vectors.shape[1]
    directions: Tensor = torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(0))).Q
    return directions


def frequent_ngrams(
    rows: Sequence[Row], task: TaskInfo, teacher: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, longest: int
) -> dict[Ngram, int]:
    """Return the most frequent n-grams of the teacher's ids in rows of train, with their counts."""
    texts = TaskTexts(task, fast_tokenizer(teacher.config, tokenizer))
    whole, counts = whole_texts(json.loads(tokenizer.backend_tokenizer.to_str())), Counter[Ngram]()
    for pieces in texts.pieces(evenly_spaced(rows, SAMPLE), whole):
        ids = pieces[: task.max_length].tolist()
        for size in range(2, longest + 1):
            counts.update(zip(*(ids[offset:] for offset in range(size)), strict=False))
        if len(counts) > MOST_COUNTED:  # of long texts most occur once
            counts = Counter({ngram: count for ngram, count in counts.items() if count > 1})
    common = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:MOST_NGRAMS]
    return {ngram: count for ngram, count in common if count >= LEAST_COUNT}


def in_buckets(
    config: PreTrainedConfig, ngrams: Sequence[Sequence[int]], vectors: Tensor, counts: Sequence[int]
) -> Tensor:
    """Return the pool (buckets, width) in which each vector of both hashes is the mean of its n-grams' by count."""
    ids = torch.tensor([[0] * (config.ngrams - len(ngram)) + list(ngram) for ngram in ngrams])
    orders = torch.tensor([len(ngram) - 2 for ngram in ngrams])
    hashes = NgramHash(config.ngrams, config.buckets)(ids)[torch.arange(len(ids)), 0, orders]
    pool, total, shares = (
        torch.zeros(config.buckets, vectors.shape[1]),
        torch.zeros(config.buckets),
        torch.tensor(counts),
    )
    for buckets in hashes[:, : HASHES - 1].T:
        pool.index_add_(0, buckets, vectors * shares[:, None])
        total.index_add_(0, buckets, shares.float())
    return pool / total.clamp(min=1)[:, None]
