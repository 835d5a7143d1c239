"""The softmax of short lines, and its way back.

On a CPU torch takes lines of fewer numbers than its vectors are wide one number at a time: of 14 numbers a softmax
takes ten times as long as of 16. Texts are often that short, so their lines are made wide enough first.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

VECTOR_WIDTH = 16
"""Numbers in single precision in the widest vectors of today's processors."""


def softmax(scores: Tensor) -> Tensor:
    """Over the last dimension."""
    beyond = VECTOR_WIDTH - scores.shape[-1]
    if beyond <= 0 or scores.device.type != "cpu":
        return scores.softmax(dim=-1)
    return pad(scores, (0, beyond), value=-torch.inf).softmax(dim=-1)[..., :-beyond].contiguous()


def softmax_backward(gradient: Tensor, share: Tensor) -> Tensor:
    """The gradient of the scores, from that of their softmax; both in the same precision."""
    if share.shape[-1] >= VECTOR_WIDTH or share.device.type != "cpu":
        return torch._softmax_backward_data(gradient, share, -1, share.dtype)
    weighed = gradient * share
    return weighed.sub_(share * weighed.sum(dim=-1, keepdim=True))
