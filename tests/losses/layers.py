"""What the tests of layer losses share: states of two models, masks, and slow loops over rows, heads and tokens."""

import math

import torch

from compress.losses import LOSSES
from compress.recipe.loss_schema import Losses
from tests.losses.helpers import drawn

EXAMPLES, TOKENS, WIDTH, HEADS, SIZE = 3, 5, 8, 4, 6
LENGTHS = [5, 3, 1]
LAYERS = ("hidden_state", "embedding", "attention", "relation", "similarity", "contrast")
OF_BATCH = ("similarity", "contrast")
"""Losses that depend on which rows share a batch."""
FORMS = {
    "hidden_state": [{"form": "mse"}, {"form": "cosine"}, {"form": "cls"}],
    "embedding": [{}],
    "attention": [{"form": "kl"}, {"form": "scores"}],
    "relation": [{}, {"pairs": ("qk", "vv")}, {"heads": 2}, {"heads": 12, "pairs": ("kk",)}],
    "similarity": [{}, {"angle": 0.0}, {"distance": 0.0, "pool": "mean"}],
    "contrast": [{}, {"temperature": 0.5, "pool": "mean"}],
}
CASES = [(name, options) for name in LAYERS for options in FORMS[name]]


def section(name, **options):
    """The settings of one loss."""
    return getattr(Losses(**{name: options}), name)


def batch_of(lengths=LENGTHS, tokens=TOKENS, group=None):
    mask = (torch.arange(tokens) < torch.tensor(lengths)[:, None]).long()
    batch = {"input_ids": mask, "attention_mask": mask}
    return batch if group is None else {**batch, "group": torch.tensor(group)}


def states(seed=0, examples=EXAMPLES, tokens=TOKENS, width=WIDTH, heads=HEADS, size=SIZE, dtype=torch.float32):
    """What observing a layer gives; Q, K and V lie in memory as a linear layer leaves them."""
    made = {"hidden": drawn(examples, tokens, width, seed=seed)}
    for index, name in enumerate(("query", "key", "value")):
        flat = drawn(examples, tokens, heads * size, seed=seed + 1 + index)
        made[name] = flat.view(examples, tokens, heads, size).transpose(1, 2)
    return {name: each.to(dtype) for name, each in made.items()}


def value(name, ours, theirs, batch, **options):
    return LOSSES[name].function(ours, theirs, batch, section(name, **options))


def padded(parts, more, fill=3.0):
    """The same with more padding, of numbers that would be noticed."""
    return {name: torch.nn.functional.pad(each, (0, 0, 0, more), value=fill) for name, each in parts.items()}


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def lines(looking, looked_at, length):
    """The scores of one head, by plain sums (lists of vectors)."""
    scale = math.sqrt(len(looking[0]))
    return [[dot(a, b) / scale for b in looked_at[:length]] for a in looking[:length]]


def softmax(scores):
    odds = [math.exp(score - max(scores)) for score in scores]
    return [each / sum(odds) for each in odds]


def kl(theirs, ours):
    return sum(p * math.log(p / q) for p, q in zip(softmax(theirs), softmax(ours), strict=True))


def squares(theirs, ours):
    return sum((a - b) ** 2 for a, b in zip(theirs, ours, strict=True)) / len(ours)


def mean(values):
    return sum(values) / len(values)


def over_maps(ours, theirs, distance, lengths=LENGTHS):
    """The mean over examples of the mean over heads and lines; ours and theirs: (looking, looked at) as tensors."""
    rows = []
    for at, length in enumerate(lengths):
        heads = []
        for head in range(ours[0].shape[1]):
            given, wanted = (lines(*(side[at, head].tolist() for side in each), length) for each in (ours, theirs))
            heads.append(mean([distance(t, s) for t, s in zip(wanted, given, strict=True)]))
        rows.append(mean(heads))
    return mean(rows)
