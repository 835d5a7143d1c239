"""Softmax over short lines, and its gradient.

On a CPU, torch processes lines shorter than a vector register one number at a time: a softmax over 14 numbers takes ten
times as long as one over 16. Texts are often that short, so their lines are padded to the register width first.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

VECTOR_WIDTH = 16
"""Single-precision numbers in the widest vector registers of today's CPUs."""


def softmax(scores: Tensor) -> Tensor:
    """Return the softmax over the last dimension."""
    missing = VECTOR_WIDTH - scores.shape[-1]
    if missing <= 0 or scores.device.type != "cpu":
        return scores.softmax(dim=-1)
    return pad(scores, (0, missing), value=-torch.inf).softmax(dim=-1)[..., :-missing].contiguous()
