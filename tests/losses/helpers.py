"""What the tests of losses share: random tensors, batches, and the slope that a gradient must have."""

import pytest
import torch

from compress.model_folder.model_info import TaskInfo
from compress.tasks import KINDS

ROWS = 4
TASK_LOSSES = {kind.problem: kind.loss for kind in KINDS.values()}
OUTPUTS = {kind.problem: kind.outputs for kind in KINDS.values()}
"""The loss and the form of the outputs, by the problem of a kind."""


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def task(**settings):
    return TaskInfo(name="films", kind="classification", text=("text",), metric="accuracy", max_length=32, **settings)


def pieces(examples, tokens, lengths=None):
    """Pieces that all differ, and their mask."""
    lengths = torch.tensor(lengths or [tokens] * examples)
    return {
        "input_ids": torch.arange(examples * tokens).view(examples, tokens),
        "attention_mask": (torch.arange(tokens) < lengths[:, None]).long(),
    }


def grouped(counts):
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def unit(*shape, seed=0):
    """Vectors of length one."""
    return torch.nn.functional.normalize(drawn(*shape, seed=seed), dim=-1)


def slope_of(function, start):
    """Compare the gradient with finite differences along random directions (the losses work in fp32)."""
    at = start.clone().requires_grad_(True)
    function(at).backward()
    for seed in range(3):
        direction = drawn(*start.shape, seed=100 + seed)
        step = 1e-2 / direction.norm()
        rise = (function(start + step * direction) - function(start - step * direction)).item() / (2 * step.item())
        assert (at.grad * direction).sum().item() == pytest.approx(rise, rel=2e-2, abs=2e-3)
