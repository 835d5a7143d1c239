"""The cost of one training from its settings, the shapes of its models and text lengths: operations, memory and disk.

Operations are those of forward passes, and twice that for the student's backward passes; a teacher whose outputs are
cached runs in the first epoch alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from compress.losses import LOSSES, LayerLoss, OutputLoss
from compress.measure.resources.footprint import flops_per_token
from compress.model_folder.model_history import LAST_LAYER_ROWS, LAST_LAYER_VALUES
from compress.model_folder.model_info import ShapeInfo
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import FEATURE_LAYERS, EpochBounds, Finetune, Training, number
from compress.storage.stored_info import Info
from compress.train.core.last_layer_effort import THOROUGH, TOKEN_HEADS, fit_budget, fit_work

if TYPE_CHECKING:
    from compress.train.core.checkpoints import TrainResult

WEIGHT = 4
"""Bytes of a weight, a gradient, and each of Adam's two moments."""
ACTIVATIONS = 34
"""Bytes that a layer stores for the backward pass, by hidden size and piece in 16 bits: Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", 2022 (arXiv:2205.05198), section 4.1, without attention maps."""
BILSTM = 64
"""Weights of a BiLSTM on four layers, by the square of the hidden size h: in two directions four gates of h units, that
read 4h features and h states in the first layer, and 2h outputs and h states in the second."""
PROCESS = 500 * 2**20
"""Bytes of Python with torch and transformers loaded."""


EXPECTED_POSITION = 1 / 3
"""Where a training that ends by itself is expected to end between its least and its most epochs, without earlier ones:
distillations of SST-2 and intents took 8, 10 and 14 of 6.4 to 20 (docs/training-settings.md)."""
AnyTraining = TypeVar("AnyTraining", bound=Training)


class Throughput(Info):
    """How fast a training was, as stored in its step's record."""

    seconds_per_operation: float
    trained: float
    """Seconds of all restarts, evaluations included; the rest of the step's time is loading and encoding."""
    probe_operations: float = 0.0
    """Operations of the probe, which took place before the training."""
    evaluating: float = 0.0
    """Seconds of the evaluations of one restart."""
    foretold: float | None = None
    """Seconds that the training itself forecast for its updates, from its first ones."""
    foretold_whole: float | None = None
    """The same with evaluations, once it had done one."""
    precision: str | None = None
    """None for trainings of earlier versions."""
    precision_reason: str | None = None
    """Why it is that one where the recipe left it to `auto`."""


def throughput_of(
    result: TrainResult, settings: Training, student: ShapeInfo, teachers: Sequence[ShapeInfo]
) -> Throughput | None:
    """Return the throughput of a training; None where the operations of its models are unknown."""
    share = _teacher_share(settings, result.rows, result.rows / result.epochs if result.epochs else result.rows)
    operations = _trained_operations(settings, student, teachers, result.pieces, result.squares, share)
    if not operations or not result.seconds:
        return None
    complete = [logged for logged in result.forecasts if logged["whole"]]
    return Throughput(
        seconds_per_operation=result.seconds / operations,
        trained=result.all_seconds,
        evaluating=result.evaluating,
        foretold=next((logged["seconds"] for logged in complete), None),
        foretold_whole=next((logged["seconds"] for logged in complete if logged["evaluations"]), None),
        precision=result.precision,
        precision_reason=result.precision_reason,
    )


def training_operations(
    settings: Training, student: ShapeInfo, teachers: Sequence[ShapeInfo], train_rows: int, lengths: NDArray[np.int64]
) -> float:
    """Return the operations of all trainings on rows of these lengths; 0 where they are unknown.

    ``settings`` have neither `auto` nor a grid. A fitted layer is not trained.
    """
    if isinstance(settings, Finetune) and settings.is_fitted:
        return 0.0
    rows = trained_rows(settings, train_rows)
    pieces, squares = float(lengths.mean()) * rows, float((lengths**2).mean()) * rows
    share = _teacher_share(settings, rows, train_rows)
    one = _trained_operations(settings, student, teachers, pieces, squares, share)
    return settings.seed_count * one


def expected_length(settings: AnyTraining, position: float) -> AnyTraining:
    """Return a training that may end by itself with the number of epochs that it is expected to take.

    Args:
        settings: without `auto`.
        position: where it ends between the least (0) and the most epochs (1).
    """
    if isinstance(settings.epochs, EpochBounds):
        least, most = settings.epochs.least, settings.epochs.most
    elif settings.patience:
        least, most = min(1.0, number(settings.epochs)), number(settings.epochs)
    else:
        return settings
    return settings.model_copy(update={"epochs": least + min(1.0, max(0.0, position)) * (most - least)})


def trained_rows(settings: Training, train_rows: int) -> float:
    """Return how many rows a training (each restart) reads at most, those of all epochs together."""
    rows = most_epochs(settings) * train_rows
    if settings.max_steps:
        rows = min(rows, settings.max_steps * number(settings.batch_size) * settings.accumulate)
    return rows


def probe_operations(
    settings: Training, model: ShapeInfo, head: str, outputs: int, train_rows: int, pieces: float, squares: float
) -> float:
    """Return the most operations of all probes: encoding rows, and fitting the last layer; 0 where they are unknown.

    Args:
        settings: of the training; 0 is returned unless it starts from a probe, or is one (of a frozen encoder).
        model: its shape.
        head: of the task's kind; an embedding has no layer that a probe could fit.
        outputs: of the last layer.
        train_rows: rows of train.
        pieces: mean length of a row in tokens.
        squares: mean square of that length.
    """
    count = probe_count(settings, head)
    if not count or flops_per_token(model) is None:
        return 0.0
    assert isinstance(settings, Finetune)
    width, vectors = model.hidden * (FEATURE_LAYERS if settings.features else 1), pieces if head in TOKEN_HEADS else 1.0
    rows = train_rows if settings.is_frozen else min(train_rows, LAST_LAYER_ROWS, LAST_LAYER_VALUES / (width * vectors))
    work = fit_work(model, (outputs, width), rows, pieces, squares, vectors)
    if settings.is_frozen:
        return count * (work.of(THOROUGH) if settings.is_fitted else work.encoding)
    poolings = 1 + _compares_poolings(settings, head)
    budget = fit_budget(settings, model, train_rows, pieces, squares, poolings)
    return count * work.of(work.search_within(budget))


def probe_count(settings: Training, head: str) -> int:
    """Return how many probes a training begins with: one a seed, and one for the pooling not chosen."""
    if not isinstance(settings, Finetune) or settings.init != "probe" or head == "sentence-embedding":
        return 0
    return (1 if settings.is_frozen else settings.seed_count) + _compares_poolings(settings, head)


def _compares_poolings(settings: Finetune, head: str) -> bool:
    return settings.pooling == "auto" and head == "sequence-classification"


def most_epochs(settings: Training) -> float:
    """Return the most epochs that a training can have."""
    return settings.epochs.most if isinstance(settings.epochs, EpochBounds) else number(settings.epochs)


def copies_of_rows(settings: Training) -> int:
    """Return how many rows each labelled one becomes: itself, and those that augmentation makes of it."""
    return 1 + (settings.augment.copies if isinstance(settings, Distill) and settings.augment else 0)


def teachers_run(settings: Training, teacher: ShapeInfo | None) -> tuple[ShapeInfo, ...]:
    """Return the shapes of the teachers that a training runs; further ones are assumed to be like the recipe's own."""
    names = settings.loss_names() if isinstance(settings, Distill) else set()
    if teacher is None or not any(isinstance(LOSSES[name], (OutputLoss, LayerLoss)) for name in names):
        return ()
    assert isinstance(settings, Distill)
    return (teacher,) * (1 + len(settings.teachers))


def _teacher_share(settings: Training, rows: float, train_rows: float) -> float:
    """Return the share of all rows for which the teacher runs: those of the first epoch where outputs are cached."""
    is_cached = isinstance(settings, Distill) and settings.cache
    return min(1.0, train_rows / rows) if is_cached and rows else 1.0


def _trained_operations(
    settings: Training,
    student: ShapeInfo,
    teachers: Sequence[ShapeInfo],
    pieces: float,
    squares: float,
    teacher_share: float,
) -> float:
    """Return the operations of one training; of a head on stored features those of the head."""
    if isinstance(settings, Finetune) and settings.head == "bilstm":
        return 3 * 2 * BILSTM * student.hidden**2 * pieces
    return _operations(student, teachers, pieces, squares, teacher_share, settings.passes)


def _operations(
    student: ShapeInfo,
    teachers: Sequence[ShapeInfo],
    pieces: float,
    squares: float,
    teacher_share: float,
    passes: float = 1.0,
) -> float:
    """Return the operations of training: each pass of the student counts three times, that of a teacher once.

    0 where they are unknown.
    """
    costs = [flops_per_token(shape) or (0, 0) for shape in (student, *teachers)]
    own, *others = (piece * pieces + pair * squares for piece, pair in costs)
    return 3 * passes * own + sum(others) * teacher_share if own else 0.0


def memory(
    settings: Training, student: ShapeInfo, teachers: Sequence[ShapeInfo], longest: int, examples_per_row: float = 1.0
) -> int:
    """Return the bytes of the training process while it trains on the longest batch."""
    weights = 4 * WEIGHT * student.parameters + WEIGHT * sum(shape.parameters for shape in teachers)
    pieces = number(settings.batch_size) * examples_per_row * longest
    maps = 2 * WEIGHT * max(student.heads, default=1) * longest * pieces
    return round(PROCESS + weights + ACTIVATIONS * student.hidden * student.layers * pieces + maps)


def disk(settings: Training, student: ShapeInfo, teachers: Sequence[ShapeInfo], rows: int, pieces: float) -> int:
    """Return the bytes on disk while it trains: checkpoints, the best weights, encoded rows, what is cached."""
    cache = 0
    if isinstance(settings, Finetune) and settings.head == "bilstm":
        cache = round(WEIGHT * FEATURE_LAYERS * student.hidden * rows * pieces)
    if isinstance(settings, Distill) and settings.cache and teachers and most_epochs(settings) > 1:
        layers = WEIGHT * _cached_parts(settings, student) * teachers[0].hidden * pieces
        cache = min(settings.cache.limit, round(rows * (WEIGHT + layers)))
    return 9 * WEIGHT * student.parameters + round(3 * WEIGHT * rows * pieces) + cache


def _cached_parts(settings: Distill, student: ShapeInfo) -> int:
    """Return how many parts of the teacher's layers are cached: hidden states, queries, keys and values of each."""
    losses = (LOSSES[name] for name in settings.loss_names())
    layers = [loss for loss in losses if isinstance(loss, LayerLoss)]
    return sum(len(loss.needs) * (student.layers if loss.at == "mapped" else 1) for loss in layers)


def finished_weights(settings: Training, student: ShapeInfo) -> int:
    """Return the bytes of the best weights that finished trainings keep until the best of all is known."""
    return WEIGHT * student.parameters * (settings.trial_count - 1)
