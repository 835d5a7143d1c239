"""Linear probes: how well, and in how few bits, a layer's vectors give the answer.

- Logistic regression for classes and labels, ridge regression for numbers, by L-BFGS; the strength of the penalty is
  the one with the lowest loss on a part of train.
- A learned mix of all layers (Peters et al., 2018, arXiv:1802.05365), fitted together with its probe.
- Control tasks (Hewitt and Liang, 2019, arXiv:1909.03368): each word has one random label wherever it occurs, which
  only memory can give. Selectivity is what the task's score has above that.
- The online code (Voita and Titov, 2020, arXiv:2003.12298): the answers are sent in portions, each coded by a probe of
  those before it. How much shorter that is than the uniform code says how easily the layer gives the answers.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from compress.probe.probe_items import ProbeTask
from compress.probe.probe_scores import Outcome, ProbedTask, score_of, score_statistics
from compress.probe.states import States

STRENGTHS = (1.0, 0.1, 0.01, 0.001, 1e-4)
"""Of the squared norm beside the mean loss, strongest first."""
TUNED = 0.2
"""Share of the fitted rows on which strengths are compared."""
ITERATIONS, MIX_ITERATIONS = 30, 40
"""Of L-BFGS."""
EVEN = 0.001
"""Of the squared logarithms of a mix's weights: a weight of exactly one would never change again."""
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Of the fitted items, those that are known after each step of the online code."""
LEAST_KNOWN = 8
CHUNK = 4096
"""Items whose layers are mixed together."""


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
        outcomes.append(_probe(name, vectors, split, control))
    assert total is not None
    mean = total.div_(len(states.layers))
    outcomes.append(_probe("mean", _standardised(mean, split.fitted), split, control))
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
        edge = min(max(1, int(len(self.fitted) * (1 - TUNED))), len(self.fitted) - 1)
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

    def statistics(self, outputs: Tensor, targets: Tensor | None = None) -> NDArray[np.float64]:
        """Return what the score of these outputs for the held-out items is made of, by row."""
        true = self.targets if targets is None else targets
        return score_statistics(self.task, outputs, true[self.scored], self.task.groups[self.scored.numpy()])


Layer = tuple[Tensor, Tensor]
"""Weight (outputs, width) and bias (outputs,)."""


def _fit(
    vectors: Tensor,
    targets: Tensor,
    split: _Split,
    strength: float,
    start: Layer | None = None,
) -> Layer:
    """Return the layer with the lowest mean loss plus penalty."""
    shape = (split.outputs, vectors.shape[1])
    weight, bias = start or (torch.zeros(shape), torch.zeros(shape[0]))
    weight, bias = weight.clone().requires_grad_(), bias.clone().requires_grad_()
    optimizer = _optimizer([weight, bias], ITERATIONS)

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


def _probe(name: str, vectors: Tensor, split: _Split, control: Tensor | None) -> Outcome:
    """Fit, score and code one layer's vectors."""
    targets = split.targets
    kept, tuned = split.kept, split.tuned
    strength, layer = _best_strength(
        lambda strength, start: _fit(vectors[kept], targets[kept], split, strength, start),
        lambda layer: split.loss(F.linear(vectors[tuned], *layer), targets[tuned]),
    )
    layer = _fit(vectors[split.fitted], targets[split.fitted], split, strength, layer)
    scored = vectors[split.scored]
    bits = None if split.task.answers == "number" else _online_bits(vectors, split, strength)
    controlled = None
    if control is not None:
        fitted = _fit(vectors[split.fitted], control[split.fitted], split, strength)
        controlled = split.statistics(F.linear(scored, *fitted), control)
    return Outcome(name, split.statistics(F.linear(scored, *layer)), bits, controlled)


Fitted = TypeVar("Fitted")


def _best_strength(
    fit: Callable[[float, Fitted | None], Fitted], loss: Callable[[Fitted], Tensor]
) -> tuple[float, Fitted]:
    """Return the strength with the lowest loss on the tuned items, from strong to weak until it rises, and its fit.

    Each fit starts from the one before it.
    """
    strength, best = STRENGTHS[0], fit(STRENGTHS[0], None)
    lowest, fitted = float(loss(best)), best
    for weaker in STRENGTHS[1:]:
        fitted = fit(weaker, fitted)
        reached = float(loss(fitted))
        if reached >= lowest:
            break
        strength, best, lowest = weaker, fitted, reached
    return strength, best


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


Mix = tuple[Tensor, Tensor, Tensor]
"""Logarithms of the layers' weights, up to a constant, and a layer."""


def _mixed(task: ProbeTask, states: States, split: _Split) -> Outcome:
    """Fit a probe of the layers' weighted sum together with the weights, from layers in half precision."""
    depths = range(len(states.layers))
    stacked = torch.stack([_standardised(_vectors(task, states, layer), split.fitted).half() for layer in depths])

    flat = stacked[:, split.fitted].flatten(1).float()
    products = flat @ flat.T / flat.shape[1]
    del flat

    def outputs(mix: Mix, items: Tensor) -> Tensor:
        shares = mix[0].softmax(0)
        # Layers that differ cancel out in part: scaled, a mix is as large as each of them, so that the penalty is fair.
        scaled = shares / (shares @ products @ shares).sqrt()
        return F.linear(torch.einsum("l,liw->iw", scaled, stacked[:, items].float()), *mix[1:])

    def outputs_in_parts(mix: Mix, items: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([outputs(mix, part) for part in torch.split(items, CHUNK)])

    def fit(items: Tensor, strength: float, start: Mix | None) -> Mix:
        width = stacked.shape[2]
        start = start or (torch.zeros(len(depths)), torch.zeros(split.outputs, width), torch.zeros(split.outputs))
        shares, weight, bias = (each.clone().requires_grad_() for each in start)
        optimizer = _optimizer([shares, weight, bias], MIX_ITERATIONS)

        def closure() -> Tensor:
            optimizer.zero_grad()
            value = strength * weight.square().sum() + EVEN * shares.square().sum()
            value.backward()  # type: ignore[no-untyped-call]
            for part in torch.split(items, CHUNK):
                loss = split.loss(outputs((shares, weight, bias), part), split.targets[part]) * (len(part) / len(items))
                loss.backward()  # type: ignore[no-untyped-call]
                value = value.detach() + loss.detach()
            return value

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        return shares.detach(), weight.detach(), bias.detach()

    strength, mix = _best_strength(
        lambda strength, start: fit(split.kept, strength, start),
        lambda mix: split.loss(outputs_in_parts(mix, split.tuned), split.targets[split.tuned]),
    )
    mix = fit(split.fitted, strength, mix)
    statistics = split.statistics(outputs_in_parts(mix, split.scored))
    return Outcome("mix", statistics, weights=tuple(mix[0].softmax(0).tolist()))


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
    return float(score_of(task, split.statistics(outputs).sum(0)))
