"""Code shared by the other contestants: models, batches and losses, in torch and transformers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.distill_throughput.race_job import STUDENT, Job

if TYPE_CHECKING:
    from transformers import BertForSequenceClassification

Batch = dict[str, Tensor]
TINY = 1e-12


def models(job: Job, **settings: Any) -> tuple[BertForSequenceClassification, BertForSequenceClassification]:
    """Teacher and student in fp32. Maps are returned by eager attention alone."""
    from transformers import BertForSequenceClassification  # it imports torchvision where that is installed

    load = BertForSequenceClassification.from_pretrained
    teacher, student = (
        load(placement, attn_implementation="eager", **settings) for placement in (job.teacher, job.student)
    )
    return teacher.train(False), student.train()


def examples(job: Job, length: int | None = None) -> list[Batch]:
    """The encoded rows as tensors, each padded to ``length`` where one is given."""
    return [example(line["input_ids"], line["label"], length or len(line["input_ids"])) for line in job.lines()]


def example(pieces: Sequence[int], label: int, length: int) -> Batch:
    """One row, padded with zeros (the token [PAD] of BERT's vocabulary)."""
    missing = length - len(pieces)
    return {
        "input_ids": torch.tensor([*pieces, *[0] * missing]),
        "token_type_ids": torch.zeros(length, dtype=torch.long),
        "attention_mask": torch.tensor([1] * len(pieces) + [0] * missing),
        "labels": torch.tensor(label),
    }


def collate(rows: Sequence[Batch]) -> Batch:
    """A batch as long as its longest row."""
    longest = max(len(row["input_ids"]) for row in rows)
    padded = [{name: _padded(value, longest) for name, value in row.items()} for row in rows]
    return {name: torch.stack([row[name] for row in padded]) for name in rows[0]}


def _padded(value: Tensor, length: int) -> Tensor:
    return value if value.ndim == 0 else F.pad(value, (0, length - len(value)))


def soft_label(ours: Tensor, theirs: Tensor, temperature: float) -> Tensor:
    """``T² KL`` of the softened logits (rows, classes), as a mean over rows."""
    given = (ours / temperature).log_softmax(dim=-1)
    wanted = (theirs / temperature).softmax(dim=-1)
    return temperature**2 * F.kl_div(given, wanted, reduction="batchmean")


def hidden_state(ours: Tensor, theirs: Tensor, mask: Tensor) -> Tensor:
    """Mean squared difference (rows, tokens, width) over real tokens."""
    return _over_tokens((ours - theirs).square().mean(dim=-1), mask)


def attention(ours: Tensor, theirs: Tensor, mask: Tensor) -> Tensor:
    """KL of attention maps (rows, heads, tokens, tokens) over heads and real tokens."""
    divergence = (theirs * ((theirs + TINY).log() - (ours + TINY).log())).sum(dim=-1).mean(dim=1)
    return _over_tokens(divergence, mask)


def _over_tokens(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum()


def save_student(student: nn.Module, job: Job) -> None:
    """Save the trained weights for scoring."""
    tensors = {name: tensor.contiguous().clone() for name, tensor in student.state_dict().items()}
    save_file(tensors, job.output / STUDENT)
