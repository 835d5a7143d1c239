"""Linear probes: how well, and in how few bits, a layer's vectors give the answer.

- Logistic regression for classes and labels, ridge regression for numbers, by L-BFGS; the strength of the penalty is
  the one with the lowest loss on a part of train.
- A learned mix of all layers (Peters et al., 2018, arXiv:1802.05365), fitted together with its probe.
- Control tasks (Hewitt and Liang, 2019, arXiv:1909.03368): each word has one random label wherever it stands, which
  only memory can give. Selectivity is what the task's score has above that.
- The online code (Voita and Titov, 2020, arXiv:2003.12298): the answers are sent in portions, each coded by a probe of
  those before it. How much shorter that is than the uniform code says how easily the layer gives the answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from compress.probe.probe_tasks import ProbeTask
from compress.probe.states import States

STRENGTHS = (1.0, 0.1, 0.01, 0.001, 1e-4)
"""Of the squared norm beside the mean loss, strongest first."""
TUNED = 0.2
"""Share of the fitted rows on which strengths are compared."""
ITERATIONS, MIX_ITERATIONS = 30, 40
"""Of L-BFGS."""
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Of the fitted items, those that are known after each step of the online code."""
LEAST_KNOWN = 8
CHUNK = 4096
"""Items whose layers are mixed together."""
DRAWS = 1000
"""Bootstrap draws of held-out rows."""


@dataclass(frozen=True)
class Outcome:
    """What one probe gave."""

    name: str
    """`embeddings`, the number of a layer, `mean`, `mix`."""
    statistics: NDArray[np.float64]
    """By held-out row, the sums that the score is made of."""
    bits: float | None = None
    """Of the online code, for all fitted items."""
    control: NDArray[np.float64] | None = None
    """The same statistics for the control task."""
    weights: tuple[float, ...] | None = None
    """Of the layers in a mix."""


@dataclass(frozen=True)
class ProbedTask:
    """The probes of one task on one model."""

    task: ProbeTask
    outcomes: tuple[Outcome, ...]
    uniform_bits: float | None
    """Of the fitted answers where every one is equally likely."""
    floor: float
    """The score of the answer that is most frequent in train, whatever the item."""
    fitted: int
    scored: int


def probe_layers(task: ProbeTask, states: States, usable: NDArray[np.bool_], seed: int) -> ProbedTask:
    """Fit the probes of all layers to a task's ``usable`` items: words that every compared model sees."""
    task = replace(
        task,
        items=task.items[usable],
        targets=task.targets[usable],
        groups=task.groups[usable],
        held_out=task.held_out[usable],
        words=tuple(word for word, use in zip(task.words, usable.tolist(), strict=True) if use) if task.words else (),
    )
    split = _Split(task, seed)
    control = _control_targets(task, seed) if task.has_control else None
    outcomes, total = list[Outcome](), None
    for layer, name in enumerate(states.layers):
        vectors = _standardised(_vectors(task, states, layer), split.fitted)
        total = vectors.clone() if total is None else total.add_(vectors)
        outcomes.append(_probe(name, vectors, split, control, seed))
    assert total is not None
    mean = total.div_(len(states.layers))
    outcomes.append(_probe("mean", _standardised(mean, split.fitted), split, control, seed))
    outcomes.append(_mixed(task, states, split))
    return ProbedTask(
        task=task,
        outcomes=tuple(outcomes),
        uniform_bits=_uniform_bits(task, len(split.fitted)),
        floor=_floor(task, split),
        fitted=len(split.fitted),
        scored=len(split.scored),
    )


class _Split:
    """The items of a task by use, and how a probe of them is fitted and scored."""

    def __init__(self, task: ProbeTask, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.task = task
        fitted = np.flatnonzero(~task.held_out)
        order = {group: rank for rank, group in enumerate(random.permutation(np.unique(task.groups[fitted])).tolist())}
        ranks = np.array([order[group] for group in task.groups[fitted].tolist()])
        # Rows in a random order, so that portions of them are samples, and the words of a row stay together.
        self.fitted = torch.from_numpy(fitted[np.argsort(ranks, kind="stable")])
        self.scored = torch.from_numpy(np.flatnonzero(task.held_out))
        edge = max(1, int(len(self.fitted) * (1 - TUNED)))
        self.kept, self.tuned = self.fitted[:edge], self.fitted[edge:]
        targets = torch.from_numpy(task.targets)
        if task.answers == "number":
            given = targets[self.fitted]
            targets = (targets - given.mean()) / given.std().clamp(min=1e-6)
        self.targets = targets
        self.outputs = {"classes": len(task.classes), "labels": len(task.classes), "number": 1}[task.answers]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of an item, in nats; of numbers half the squared error."""
        if self.task.answers == "classes":
            return F.cross_entropy(outputs, targets)
        if self.task.answers == "labels":
            return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").sum(1).mean()
        return (outputs.squeeze(1) - targets).square().mean() / 2


Layer = tuple[Tensor, Tensor]
"""Weight (outputs, width) and bias (outputs,)."""


def _fit(
    vectors: Tensor,
    targets: Tensor,
    split: _Split,
    strength: float,
    start: Layer | None = None,
    turns: int = ITERATIONS,
) -> Layer:
    """Return the layer with the lowest mean loss plus penalty."""
    shape = (split.outputs, vectors.shape[1])
    weight, bias = start or (torch.zeros(shape), torch.zeros(shape[0]))
    weight, bias = weight.clone().requires_grad_(), bias.clone().requires_grad_()
    optimizer = _optimizer([weight, bias], turns)

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = split.loss(F.linear(vectors, weight, bias), targets) + strength * weight.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weight.detach(), bias.detach()


def _optimizer(parameters: list[Tensor], turns: int) -> torch.optim.LBFGS:
    return torch.optim.LBFGS(
        parameters,
        max_iter=turns,
        max_eval=turns * 5 // 4,
        tolerance_change=1e-6,
        tolerance_grad=1e-5,
        line_search_fn="strong_wolfe",
    )


def _probe(name: str, vectors: Tensor, split: _Split, control: Tensor | None, seed: int) -> Outcome:
    """Fit, score and code one layer's vectors."""
    targets = split.targets
    strength, layer = _chosen(vectors, split)
    layer = _fit(vectors[split.fitted], targets[split.fitted], split, strength, layer)
    scored = vectors[split.scored]
    bits = None if split.task.answers == "number" else _online_bits(vectors, split, strength)
    controlled = None
    if control is not None:
        fitted = _fit(vectors[split.fitted], control[split.fitted], split, strength)
        controlled = _statistics(F.linear(scored, *fitted), control[split.scored], split)
    return Outcome(name, _statistics(F.linear(scored, *layer), targets[split.scored], split), bits, controlled)


def _chosen(vectors: Tensor, split: _Split) -> tuple[float, Layer]:
    """Return the strength with the lowest loss on the tuned items, from strong to weak until it rises, and its fit."""
    kept, tuned = vectors[split.kept], vectors[split.tuned]
    best, lowest = list[tuple[float, Layer]](), np.inf
    layer: Layer | None = None
    for strength in STRENGTHS:
        layer = _fit(kept, split.targets[split.kept], split, strength, layer)
        loss = float(split.loss(F.linear(tuned, *layer), split.targets[split.tuned])) if len(tuned) else 0.0
        if loss >= lowest:
            break
        best, lowest = [(strength, layer)], loss
    return best[0]


def _online_bits(vectors: Tensor, split: _Split, strength: float) -> float:
    """Return the bits in which the fitted answers are sent, portion by portion."""
    total, bits, layer, known = len(split.fitted), 0.0, None, 0
    for portion in PORTIONS:
        end = round(portion * total)
        if end < LEAST_KNOWN and end < total:
            continue
        items = split.fitted[known:end]
        if layer is None:
            bits += _uniform_bits(split.task, len(items)) or 0.0
        else:
            loss = split.loss(F.linear(vectors[items], *layer), split.targets[items])
            bits += float(loss) / np.log(2) * len(items)
        known = end
        if known < total:
            sent = split.fitted[:known]
            # The penalty is a prior: beside the sum of losses, it is the same for all portions.
            layer = _fit(vectors[sent], split.targets[sent], split, strength * total / known, layer)
    return bits


def _mixed(task: ProbeTask, states: States, split: _Split) -> Outcome:
    """Fit a probe of the layers' weighted sum together with the weights, from layers in half precision."""
    layers = [_standardised(_vectors(task, states, layer), split.fitted).half() for layer in range(len(states.layers))]
    stacked = torch.stack(layers)
    del layers
    width = stacked.shape[2]
    shares = torch.zeros(len(states.layers), requires_grad=True)
    weight, bias = torch.zeros(split.outputs, width), torch.zeros(split.outputs)
    weight.requires_grad_(), bias.requires_grad_()

    def outputs(items: Tensor) -> Tensor:
        mixed = torch.einsum("l,liw->iw", shares.softmax(0), stacked[:, items].float())
        return F.linear(mixed, weight, bias)

    def fit(items: Tensor, strength: float) -> None:
        optimizer = _optimizer([shares, weight, bias], MIX_ITERATIONS)

        def closure() -> Tensor:
            optimizer.zero_grad()
            penalty = strength * weight.square().sum()
            penalty.backward()  # type: ignore[no-untyped-call]
            value = penalty.detach()
            for part in torch.split(items, CHUNK):
                loss = split.loss(outputs(part), split.targets[part]) * (len(part) / len(items))
                loss.backward()  # type: ignore[no-untyped-call]
                value = value + loss.detach()
            return value

        optimizer.step(closure)  # type: ignore[no-untyped-call]

    def held_out(items: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([outputs(part) for part in torch.split(items, CHUNK)])

    lowest, strength, best = np.inf, STRENGTHS[0], None
    for candidate in STRENGTHS:
        fit(split.kept, candidate)
        loss = float(split.loss(held_out(split.tuned), split.targets[split.tuned])) if len(split.tuned) else 0.0
        if loss >= lowest:
            break
        lowest, strength, best = loss, candidate, [each.detach().clone() for each in (shares, weight, bias)]
    assert best is not None
    with torch.no_grad():
        for parameter, value in zip((shares, weight, bias), best, strict=True):
            parameter.copy_(value)
    fit(split.fitted, strength)
    statistics = _statistics(held_out(split.scored), split.targets[split.scored], split)
    return Outcome("mix", statistics, weights=tuple(shares.detach().softmax(0).tolist()))


def _vectors(task: ProbeTask, states: States, layer: int) -> Tensor:
    """Return what the probe reads of each item."""
    if task.reads == "word":
        return torch.from_numpy(states.of_words(layer)[task.items[:, 0]].copy())
    texts = states.of_texts(layer)
    first = torch.from_numpy(texts[task.items[:, 0]].copy())
    if task.reads == "text":
        return first
    other = torch.from_numpy(texts[task.items[:, 1]].copy())
    return torch.cat([(first - other).abs(), first * other], 1)


def _standardised(vectors: Tensor, fitted: Tensor) -> Tensor:
    """Return vectors around zero whose components have a standard deviation of one on average."""
    known = vectors[fitted]
    center = known.mean(0)
    scale = (known - center).square().mean().sqrt().clamp(min=1e-6)
    return vectors.sub_(center).div_(scale)


def _control_targets(task: ProbeTask, seed: int) -> Tensor:
    """Return one random class for each word, by the frequency of classes."""
    random = np.random.default_rng(seed + 1)
    shares = np.bincount(task.targets, minlength=len(task.classes)) / len(task.targets)
    distinct = sorted(set(task.words))
    drawn = dict(zip(distinct, random.choice(len(shares), len(distinct), p=shares).tolist(), strict=True))
    return torch.tensor([drawn[word] for word in task.words])


def _uniform_bits(task: ProbeTask, items: int) -> float | None:
    if task.answers == "number":
        return None
    return items * (float(np.log2(len(task.classes))) if task.answers == "classes" else float(len(task.classes)))


def _floor(task: ProbeTask, split: _Split) -> float:
    """Return the score of the most frequent answer."""
    scored = split.targets[split.scored]
    if task.answers == "number":
        return 0.0
    if task.answers == "labels":
        outputs = (split.targets[split.fitted].mean(0) - 0.5).expand(len(scored), -1)
    else:
        counts = torch.bincount(split.targets[split.fitted], minlength=len(task.classes)).float()
        outputs = counts.expand(len(scored), -1)
    return float(score_of(task, _statistics(outputs, scored, split).sum(0)))


def _statistics(outputs: Tensor, targets: Tensor, split: _Split) -> NDArray[np.float64]:
    """Return by held-out row the sums that the score is made of."""
    task = split.task
    if task.answers == "classes":
        each = torch.stack([(outputs.argmax(1) == targets).double(), torch.ones(len(targets), dtype=torch.float64)], 1)
    elif task.answers == "labels":
        said, true = outputs > 0, targets > 0.5
        each = torch.stack([(said & true).sum(1), said.sum(1) + true.sum(1)], 1).double()
    else:
        x, y = _ranks(outputs.squeeze(1)), _ranks(targets)
        each = torch.stack([torch.ones_like(x), x, y, x * x, y * y, x * y], 1)
    groups, sums = np.unique(task.groups[split.scored.numpy()], return_inverse=True)
    by_row = np.zeros((len(groups), each.shape[1]))
    np.add.at(by_row, sums, each.numpy())
    return by_row


def _ranks(values: Tensor) -> Tensor:
    """Return ranks from -1 to 1; those of equal values are their mean."""
    _, inverse, counts = torch.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    middle = ends - (counts.double() - 1) / 2
    ranks: Tensor = 2 * middle[inverse] / len(values) - 1
    return ranks


METRICS = {"classes": "accuracy", "labels": "micro F1", "number": "Spearman"}
"""What a probe is scored by."""


def score_of(task: ProbeTask, sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the score from sums of statistics, (..., statistics)."""
    parts = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        if task.answers == "classes":
            return np.asarray(parts[0] / parts[1])
        if task.answers == "labels":
            return np.asarray(np.nan_to_num(2 * parts[0] / parts[1]))
        count, x, y, xx, yy, xy = parts
        spread = np.sqrt((xx - x * x / count) * (yy - y * y / count))
        return np.asarray(np.nan_to_num((xy - x * y / count) / spread))


def bootstrap_weights(rows: int, seed: int) -> NDArray[np.float64]:
    """Return how often each held-out row is drawn, (draws, rows)."""
    return np.random.default_rng(seed).multinomial(rows, np.full(rows, 1 / rows), DRAWS).astype(np.float64)
