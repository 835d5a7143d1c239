"""The fitted last layer: the best linear one on the encoder as it is, from which fine-tuning starts (`init: probe`).

Kumar et al., "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution", 2022
(arXiv:2202.10054): with a random head the first updates bend good features towards bad outputs; fitting the head first
avoids it. Rows are encoded once, then the task's own loss plus an L2 penalty is minimised with L-BFGS (Liu and Nocedal,
1989): logistic regression for classes and tags, ridge regression for numbers. The strength of the penalty is the one
with the lowest loss in cross-validation over training rows. `core.last_layer_effort` limits the work of all this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.console import Console, Progress
from compress.data.encode import bucketed_batches
from compress.model_folder.model_history import LAST_LAYER_ROWS, LAST_LAYER_VALUES, LastLayerInfo
from compress.models.encoder_parts import shape_of
from compress.models.heads import head_of
from compress.models.load_save import output_layer
from compress.storage.atomic_write import atomic_write
from compress.train.core.auto_settings import MOST_EXAMPLES
from compress.train.core.checkpoints import tensor_digest
from compress.train.core.distributed import current_processes, returned
from compress.train.core.last_layer_effort import THOROUGH, TOKEN_HEADS, FitWork, Search, fit_work, most_evaluations
from compress.train.label_scale import LabelScale
from compress.train.objective import Batch, Examples, forward

BATCH = 128
LEAST_SPREAD = 0.05
"""Features that differ by less than this share of their size are not scaled up further: their weights would be so large
that fine-tuning diverges and rounding shows in the outputs (encoders with random weights)."""


@dataclass(frozen=True)
class Limit:
    """How much of train is encoded, at most; of larger sets a sample."""

    rows: int
    values: int
    """Numbers of all stored features."""
    operations: float | None = None
    """Of encoding and fitting together; None: as many as the most thorough search takes."""


START = Limit(rows=LAST_LAYER_ROWS, values=LAST_LAYER_VALUES)
"""Of a probe that fine-tuning starts from (128 MiB)."""
WHOLE = Limit(rows=1 << 40, values=1 << 28)
"""Of a last layer that is the result: all rows, unless their features need more than 1 GiB."""

OutputLoss = Callable[[Mapping[str, Tensor], Batch], Tensor]
"""(outputs, batch) -> the mean loss over the batch's rows."""
Layer = tuple[Tensor, Tensor]
"""Weight (outputs, width) and bias (outputs,)."""


@dataclass(frozen=True)
class Encoded:
    """A batch as the last layer reads it."""

    features: Tensor
    """(..., width)"""
    arrays: Batch
    """Labels, masks and groups."""
    rows: int


@dataclass(frozen=True)
class LastLayer:
    """A fitted last layer."""

    weight: Tensor
    bias: Tensor
    info: LastLayerInfo

    def apply_to(self, model: PreTrainedModel) -> None:
        """Set the last layer of ``model``."""
        last = output_layer(model)
        assert last is not None
        with torch.no_grad():
            last.weight.copy_(self.weight)
            last.bias.copy_(self.bias)


def stored_last_layer(
    model: PreTrainedModel,
    examples: Examples,
    loss: OutputLoss,
    seed: int,
    path: Path,
    limit: Limit = START,
    console: Console | None = None,
    scale: LabelScale | None = None,
) -> LastLayer | None:
    """Return the probe of ``model``; None for heads without a linear last layer.

    The main process fits it and stores it at ``path``: a resumed training starts with the same weights.
    """
    if output_layer(model) is None:
        return None
    processes = current_processes()
    weights = {name: tensor_digest(tensor) for name, tensor in model.state_dict().items()}
    identity = f"{seed} {limit} {examples.digest()} {weights}"
    if processes.is_main and _read(path, identity) is None:
        with returned(model):
            nn.Module.to(model, processes.device)
            probe = fit_last_layer(model, examples, loss, seed, limit, console, scale)
        metadata = {"identity": identity, "info": probe.info.model_dump_json()}
        atomic_write(path, save({"weight": probe.weight, "bias": probe.bias}, metadata))
    processes.wait()
    return _read(path, identity)


def _read(path: Path, identity: str) -> LastLayer | None:
    """Return a stored probe; None where there is none of this model and these rows."""
    try:
        with safe_open(path, "pt") as stored:
            if stored.metadata()["identity"] != identity:
                return None
            info = LastLayerInfo.model_validate_json(stored.metadata()["info"])
            return LastLayer(stored.get_tensor("weight"), stored.get_tensor("bias"), info)
    except (OSError, SafetensorError):
        return None


def fit_last_layer(
    model: PreTrainedModel,
    examples: Examples,
    loss: OutputLoss,
    seed: int,
    limit: Limit = START,
    console: Console | None = None,
    scale: LabelScale | None = None,
) -> LastLayer:
    """Return the last layer with the lowest regularised loss on the frozen features of the training rows.

    ``scale``: of labels that are numbers, in whose unit the penalty counts.
    """
    last, head, console = output_layer(model), head_of(model), console or Console("quiet")
    assert last is not None
    work, rows = _work(model, last, examples, limit)
    search = work.search_within(limit.operations)
    if search.rows < 1:
        limit = replace(limit, rows=max(1, math.ceil(search.rows * rows)))
    with console.progress(min(limit.rows, rows), "last layer: encode", "rows") as progress:
        batches = encode_features(model, last, examples, seed, limit, progress.advance)
    center, size = _center_and_scale(batches)
    for batch in batches:
        batch.features.sub_(center).div_(size)
    encoded = sum(batch.rows for batch in batches)
    with console.progress(search.evaluations * encoded, "last layer: fit", "rows") as progress:
        fit = _Fit(head.outputs, loss, progress, scale)
        chosen = _cross_validate(fit, batches, last.weight.shape, search)
        weight, bias = fit(batches, chosen.strength, chosen.layer, search.last_iterations)
    info = LastLayerInfo(
        rows=encoded,
        strength=chosen.strength,
        loss=chosen.loss,
        operations=(encoded * work.encoding + fit.rows * work.evaluation) / rows,
    )
    weight, bias = weight / size, bias - weight @ center / size
    return LastLayer(*((weight, bias) if scale is None else scale.layer(weight, bias)), info)


def _work(model: PreTrainedModel, last: nn.Linear, examples: Examples, limit: Limit) -> tuple[FitWork, int]:
    """Return the work of a probe of all rows within the limit, and how many rows these are."""
    lengths, total = examples.example_lengths.astype(np.float64), len(examples.lengths)
    pieces, squares = lengths.sum() / total, (lengths**2).sum() / total
    vectors = pieces if head_of(model).name in TOKEN_HEADS else len(lengths) / total
    rows = min(total, limit.rows, math.ceil(limit.values / (last.in_features * vectors)))
    return fit_work(shape_of(model), last.weight.shape, rows, pieces, squares, vectors), rows


@dataclass(frozen=True)
class _Chosen:
    """The strength with the lowest held-out loss."""

    strength: float
    loss: float
    layer: Layer
    """Fitted with it on part of the rows."""


def _cross_validate(fit: _Fit, batches: Sequence[Encoded], shape: torch.Size, search: Search) -> _Chosen:
    """Return the strength with the lowest held-out loss: from strong to weak, until it rises.

    Before anything is better than a layer of zeros, a rise is no reason to end: with few rows a class, those held out
    are of the classes that are rare in the others, and a strong penalty leaves nothing but that frequency.
    """
    sample = batches[: max(min(search.folds, len(batches)), round(search.sample * len(batches)))]
    folds = [sample[number :: search.folds] for number in range(min(search.folds, len(sample)))]
    layers: list[Layer] = [(torch.zeros(shape), torch.zeros(shape[0]))] * len(folds)
    best, parts = _Chosen(search.strengths[0], np.inf, layers[0]), folds[: search.held_out]
    with torch.no_grad():
        of_zeros = sum(float(fit.loss_of(*layers[0], held)) for held in parts) / len(parts)
    for strength in search.strengths:
        held_out = 0.0
        for number, held in enumerate(parts):
            rest = [batch for fold in folds if fold is not held for batch in fold] or list(sample)
            layers[number] = fit(rest, strength, layers[number], search.iterations)
            with torch.no_grad():
                held_out += float(fit.loss_of(*layers[number], held)) / len(parts)
        if held_out >= best.loss and best.loss < of_zeros:
            break
        if held_out < best.loss:
            best = _Chosen(strength, held_out, layers[0])
    return best


@dataclass
class _Fit:
    """Fits a last layer to encoded batches."""

    outputs: tuple[str, ...]
    """The names of the model's outputs; several share the layer, each with one of its rows."""
    loss: OutputLoss
    progress: Progress
    scale: LabelScale | None = None
    rows: int = 0
    """Rows of all evaluations of the loss and its gradient so far."""

    def __call__(self, part: Sequence[Encoded], strength: float, start: Layer, iterations: int) -> Layer:
        weight, bias = (tensor.clone().requires_grad_() for tensor in start)
        # The more outputs share the loss, the smaller is each one's gradient, and so are weights under a penalty.
        optimizer = torch.optim.LBFGS(
            [weight, bias],
            max_iter=iterations,
            max_eval=most_evaluations(iterations),
            tolerance_change=1e-5 / len(bias),
            tolerance_grad=1e-4 / len(bias),
            line_search_fn="strong_wolfe",
        )
        rows = sum(batch.rows for batch in part)

        def closure() -> Tensor:
            optimizer.zero_grad()
            value = self.loss_of(weight, bias, part) + strength * weight.square().sum()
            value.backward()  # type: ignore[no-untyped-call]
            self.rows += rows
            self.progress.advance(rows, f"strength {strength:g}, loss {float(value.detach()):.3f}", left="")
            return value

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        return weight.detach(), bias.detach()

    def loss_of(self, weight: Tensor, bias: Tensor, part: Sequence[Encoded]) -> Tensor:
        """Return the mean loss over the rows of ``part``."""
        total = torch.zeros(())
        for batch in part:
            values = F.linear(batch.features, weight, bias)
            values = values if self.scale is None else self.scale.outputs(values)
            columns = (values,) if len(self.outputs) == 1 else values.unbind(-1)
            total = total + self.loss(dict(zip(self.outputs, columns, strict=True)), batch.arrays) * batch.rows
        return total / sum(batch.rows for batch in part)


def encode_features(
    model: PreTrainedModel,
    last: nn.Linear,
    examples: Examples,
    seed: int,
    limit: Limit,
    advance: Callable[[float], object],
) -> list[Encoded]:
    """Return what the last layer reads of a sample of training rows, in batches of similar length, on the CPU."""
    captured: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda module, inputs: captured.append(inputs[0].float().cpu()))
    at_once = MOST_EXAMPLES * len(examples.lengths) // len(examples.example_lengths)  # rows, whose examples go together
    size = max(1, min(BATCH, at_once, len(examples.lengths) // (4 * THOROUGH.folds)))
    encoded: list[Encoded] = []
    training = model.training
    model.train(False)
    try:
        for indices in bucketed_batches(examples.lengths, size, seed, 0):
            arrays = {name: torch.from_numpy(array) for name, array in examples.batch(indices).items()}
            with torch.no_grad():
                forward(model, {name: array.to(model.device) for name, array in arrays.items()})
            encoded.append(Encoded(captured.pop(), arrays, len(indices)))
            advance(len(indices))
            rows, values = sum(each.rows for each in encoded), sum(each.features.numel() for each in encoded)
            if rows >= limit.rows or values >= limit.values:
                break
    finally:
        hook.remove()
        model.train(training)
    return encoded


def _center_and_scale(batches: Sequence[Encoded]) -> tuple[Tensor, Tensor]:
    """Return the mean of all features (width,), and one standard deviation: at least `LEAST_SPREAD` of their size."""
    flat = [batch.features.flatten(0, -2) for batch in batches]
    count = sum(len(each) for each in flat)
    center = torch.stack([each.sum(dim=0) for each in flat]).sum(dim=0) / count
    variance = torch.stack([(each - center).square().mean(dim=1).sum() for each in flat]).sum() / count
    size = (center.square().mean() + variance).sqrt()
    return center, torch.maximum(variance.sqrt(), LEAST_SPREAD * size).clamp(min=1e-6)
