"""Masks of masked language modelling: a pure function of a seed and a step.

Every random number is a hash of (seed, step, example, position). So an example has the same masks in every batch,
process, thread and device, and a training that resumes draws those that it would have drawn.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019 (arXiv:1810.04805), section 3.1 and
appendix A.1. Liu et al., "RoBERTa", 2019 (arXiv:1907.11692), section 4.1: dynamic masks.
"""

import torch
from torch import Tensor

from compress.batch_arrays import IGNORED_LABEL
from compress.pretrain.pretrain_schema import MaskedLM

MASKED, RANDOM = 0.8, 0.1
"""Of the chosen pieces: the shares that become the mask, and a random piece. The others stay as they are."""

CHOICE, CHANGE, PIECE = range(3)
"""What a random number decides: whether a piece is chosen, how it changes, and which random piece it becomes."""
STATIC_STEP = 0
"""The step from which static masks are drawn, whatever the training's."""


def mask_pieces(
    ids: Tensor,
    maskable: Tensor,
    word_start: Tensor,
    index: Tensor,
    seed: int,
    step: int,
    settings: MaskedLM,
    vocabulary_size: int,
    mask_id: int,
) -> tuple[Tensor, Tensor]:
    """Return the masked ids, and as targets the true ids of the chosen pieces, `IGNORED_LABEL` elsewhere.

    Args:
        ids: pieces (examples, pieces).
        maskable: 0 at special pieces and padding.
        word_start: 1 at the first piece of a word; read for whole words only.
        index: the number of each example (examples,).
        seed: of the training.
        step: the update, counted from 0; with static masks it has no effect.
        settings: which share of the pieces is chosen, and whether as whole words.
        vocabulary_size: random pieces are drawn evenly from all ids below.
        mask_id: the id of the mask.
    """
    step = STATIC_STEP if settings.masks == "static" else step
    random = Hashes(index.to(ids.device), ids.shape[1], seed, step)
    can_change = maskable.bool()
    chosen = random.shares(CHOICE) < settings.share
    if settings.whole_words:  # each piece follows the first one of its word
        chosen = chosen.gather(1, first_of_word(word_start.bool() | ~can_change))
    chosen = chosen & can_change
    change = random.shares(CHANGE)
    masked = torch.where(chosen & (change < MASKED), mask_id, ids)
    replaced = chosen & (change >= MASKED) & (change < MASKED + RANDOM)
    masked = torch.where(replaced, random.below(PIECE, vocabulary_size), masked)
    return masked, torch.where(chosen, ids, IGNORED_LABEL)


def first_of_word(starts: Tensor) -> Tensor:
    """Return for each position that of the last start at or before it (examples, pieces)."""
    positions = torch.arange(starts.shape[1], device=starts.device).expand_as(starts)
    return torch.where(starts, positions, 0).cummax(dim=1).values


class Hashes:
    """Random numbers for each position of each example, by what they decide."""

    def __init__(self, index: Tensor, width: int, seed: int, step: int) -> None:
        positions = torch.arange(width, device=index.device)
        key = _mix(_mix(torch.tensor(seed, device=index.device)) + step)
        self._keys = _mix(_mix(key + index)[:, None] + positions)

    def shares(self, decision: int) -> Tensor:
        """Return evenly distributed numbers from 0 to below 1 (examples, positions)."""
        return self._bits(decision).to(torch.float64) * 2.0**-53

    def below(self, decision: int, limit: int) -> Tensor:
        """Return evenly distributed whole numbers below ``limit`` (examples, positions)."""
        return self._bits(decision) % limit

    def _bits(self, decision: int) -> Tensor:
        """Return 53 random bits each: the largest whole numbers that a float64 holds exactly."""
        return _shifted(_mix(self._keys + decision), 11)


def _mix(values: Tensor) -> Tensor:
    """Return the next output of SplitMix64 for each state: every bit of it depends on every bit of the state.

    Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014. Products of int64 wrap around, as they must.
    """
    values = values + -0x61C8864680B583EB
    values = (values ^ _shifted(values, 30)) * -0x40A7B892E31B1A47
    values = (values ^ _shifted(values, 27)) * -0x6B2FB644ECCEEE15
    return values ^ _shifted(values, 31)


def _shifted(values: Tensor, bits: int) -> Tensor:
    """Return int64 values shifted right with zeros, as if they had no sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)
