"""The two steps of pruning: cut scores and removes heads and neurons, recover distils what remains."""

import copy
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.data.encode import bucketed_batches, encode_rows, training_examples
from compress.data.splits.prepare_splits import load_prepared
from compress.data.tokenizer import TextTokenizer
from compress.errors import UsageError
from compress.families import require_prunable
from compress.model_folder.model_history import PruningInfo
from compress.model_folder.model_info import ShapeInfo, TaskInfo, find_info
from compress.models.encoder_parts import family_of, shape_of
from compress.models.load_save import load_model, load_tokenizer
from compress.prune.allocation import least_loss, select_units
from compress.prune.criteria import CRITERIA, Criterion
from compress.prune.latency_table import LatencyTable, SpeedupResult
from compress.prune.least_squares import fit_output_weights
from compress.prune.mask_gradients import LayerUnits, UnitLoss, collect_units
from compress.prune.prune_ratios import check_sample, equivalent_ratios, layer_parameters, resolve_ratios
from compress.prune.speedup_goal import Importance, SpeedupGoal
from compress.prune.surgery import pruned_layer, remove_units, since_first_cut
from compress.recipe.distill_schema import Distill
from compress.recipe.prune_schema import Prune
from compress.tasks.base import Row
from compress.train.core.training_data import fast_tokenizer
from compress.train.distill import distill_from_model
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.distillation.embedding_projection import match_embedding_width
from compress.train.distillation.teachers import STUDENT_HINT, ids_in_teacher
from compress.train.objective import Batch, Objective, TaskObjective
from compress.train.save_trained import save_trained_model

BATCH_SIZE = 32
"""Rows whose gradients are averaged before importance takes absolute values; 8 or 32 select the same units."""
SCORING_LOSS = {"losses": {"soft_label": 1.0}, "hard_label": 1.0}
"""The loss whose change importance estimates: the true labels and the teacher's outputs."""

Selection = Callable[[Importance, Importance], tuple[list[list[int]], list[list[int]]]]
"""From the importance of heads and of neurons to the units that stay in each layer."""


class Cut(NamedTuple):
    """A model without its least important heads and neurons."""

    model: PreTrainedModel
    pruning: PruningInfo
    """What it kept."""
    speedup: SpeedupResult | None
    """How a goal of speed-up was reached; None with another goal."""


def cut(
    student: Path,
    teacher: Path | None,
    data: Path,
    settings: Prune,
    seed: int,
    work: Path,
    *,
    latency: LatencyTable | None = None,
    is_later: bool = False,
    console: Console | None = None,
) -> SpeedupResult | None:
    """Write the model folder of ``student`` without its least important heads and neurons to ``work``; no training.

    Of several processes only the main one calls this. Returns how a goal of speed-up was reached; None with another
    goal.

    Args:
        student: the model folder to prune.
        teacher: the model folder whose outputs are part of the scoring loss; None: the true labels alone.
        data: a prepared data folder.
        settings: how much to remove and how many batches to score on.
        seed: selects the rows that are scored.
        work: receives the result; the files of a killed attempt are removed first.
        latency: of models of this shape, where the goal is a speed-up.
        is_later: whether ``settings`` are those of another than the first of several cuts (`resolve_ratios`).
        console: where progress is shown.
    """
    shutil.rmtree(work, ignore_errors=True)
    roles = load_prepared(data)
    task, rows, tokens = roles.info.task_info, roles.rows("train"), TextTokenizer.load(student)
    model, tokenizer = load_model(student, task), load_tokenizer(student)
    guide, teacher_ids = None, None
    if teacher:
        guide = match_embedding_width(model, load_model(teacher, task), rows, task, TextTokenizer.load(teacher))
        teacher_ids = ids_in_teacher(f"the model {student}", tokenizer, load_tokenizer(teacher), STUDENT_HINT)
    for moved in filter(None, (model, guide)):
        torch.nn.Module.to(moved, "cuda" if torch.cuda.is_available() else "cpu")
    options: dict[str, Any] = {"teacher": guide, "teacher_ids": teacher_ids, "latency": latency, "console": console}
    pruned, pruning, speedup = cut_from_model(model, rows, task, tokens, settings, seed, is_later=is_later, **options)
    torch.nn.Module.to(pruned, "cpu")
    if (info := find_info(student)) and info.pruning:
        pruning = since_first_cut(info.pruning, pruning)
    vocabulary = info.vocabulary if info else None
    save_trained_model(pruned, tokenizer, work, "cut", data, pruning=pruning, vocabulary=vocabulary)
    return speedup


def prune_from_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train_rows: Sequence[Row],
    select_rows: Sequence[Row],
    task: TaskInfo,
    settings: Prune,
    *,
    teacher: PreTrainedModel | None = None,
    teacher_tokenizer: PreTrainedTokenizerBase | None = None,
    seed: int = 0,
    work: Path | None = None,
    console: Console | None = None,
    **recovery: Any,
) -> PreTrainedModel:
    """Return a pruned copy of ``model``, recovered on canonical rows from ``teacher`` (or from ``model`` itself).

    A teacher of whose vocabulary the model's is a part has a ``teacher_tokenizer``. With a ``work`` folder a killed
    recovery resumes from there. ``recovery``: further arguments of `distill_from_model` (`track`, `unlabelled_rows`).
    """
    if settings.vocabulary is not None:
        raise UsageError(
            "prune_from_model removes heads and neurons, not word pieces (vocabulary), which change the tokenizer too.",
            hint="leave vocabulary out, and call prune_vocabulary_from_model on the result",
        )
    tokens, theirs = fast_tokenizer(model.config, tokenizer), teacher_tokenizer or tokenizer
    teacher_ids = ids_in_teacher("the model", tokenizer, theirs, STUDENT_HINT)
    if teacher is not None:
        read = tokens if teacher_ids is None else fast_tokenizer(teacher.config, theirs)
        teacher = match_embedding_width(model, teacher, train_rows, task, read)
    recovery |= {"seed": seed, "console": console, "student_tokenizer": tokenizer}
    options: dict[str, Any] = {"teacher": teacher, "teacher_ids": teacher_ids, "console": console}
    pruned = model
    for number, stage in enumerate(settings.stages(), start=1):
        result = cut_from_model(pruned, train_rows, task, tokens, stage, seed, is_later=number > 1, **options)
        pruned = result.model
        if stage.recover:
            sets, guide = (theirs, train_rows, select_rows), teacher or model
            # Each recovery has a folder of its own: it would refuse the files that another left when it was killed.
            recovery |= {"work": work and work / f"recover-{number}", "pruning": result.pruning}
            pruned = distill_from_model(guide, pruned, *sets, task, stage.recover, **recovery)
    return pruned


def cut_from_model(
    model: PreTrainedModel,
    rows: Sequence[Row],
    task: TaskInfo,
    tokens: TextTokenizer,
    settings: Prune,
    seed: int,
    *,
    teacher: PreTrainedModel | None = None,
    teacher_ids: NDArray[np.int64] | None = None,
    latency: LatencyTable | None = None,
    is_later: bool = False,
    console: Console | None = None,
) -> Cut:
    """Return a copy of ``model`` without the heads and neurons that matter least on a sample, and what it kept.

    ``teacher_ids``: as of `ids_in_teacher`. ``latency``: for a goal of speed-up whose settings name no file with
    latencies. ``is_later``: as of `cut`.
    """
    require_prunable(family_of(model))
    before = shape_of(model)
    timed = settings.has_latency_goal
    goal = SpeedupGoal(model, settings, latency, console or Console("quiet")) if timed else None
    select = goal.select if goal else _by_shares(before, settings, is_later)
    batches = list(_scoring_batches(rows, task, tokens, teacher_ids, settings, seed, model.device))
    units = collect_units(model, batches, _scoring_loss(model, teacher, task), seed, console)
    criterion = CRITERIA[settings.criterion]
    heads, ffn = (list(map(resolve_name(criterion.importance), layers)) for layers in (units.heads, units.ffn))
    selected_heads, selected_ffn = select(heads, ffn)
    kept_heads = _exchanged(criterion, units.heads, selected_heads)
    kept_ffn = _exchanged(criterion, units.ffn, selected_ffn)
    pruned = remove_units(copy.deepcopy(model), kept_heads, kept_ffn)
    if criterion.rescale if settings.rescale is None else settings.rescale:
        fit_output_weights(pruned, model, kept_heads, kept_ffn, batches)
    after = shape_of(pruned)
    remaining = layer_parameters(after) / layer_parameters(before)
    shapes = f"{before.text} → {after.text}"
    (console or Console("quiet")).note(f"cut: {shapes}, {remaining:.1%} of the layers' parameters remain")
    counts = [", ".join(str(len(units)) for units in kept) for kept in (kept_heads, kept_ffn)]
    (console or Console("quiet")).note(f"cut: by layer, {counts[0]} heads; FFN {counts[1]}")
    layers = map(pruned_layer, kept_heads, heads, kept_ffn, ffn)
    pruning = PruningInfo(criterion=settings.criterion, layers=tuple(layers))
    return Cut(pruned, pruning, goal.result if goal else None)


def _by_shares(shape: ShapeInfo, settings: Prune, is_later: bool) -> Selection:
    """Return the function from importance to the units that stay in each layer; a goal out of reach is refused now."""
    ratios = resolve_ratios(shape, settings, is_later=is_later)

    def select(heads: Importance, ffn: Importance) -> tuple[list[list[int]], list[list[int]]]:
        heads_ratio, ffn_ratio = ratios
        if settings.to and CRITERIA[settings.criterion].joint and (pairs := equivalent_ratios(shape, settings)):
            heads_ratio, ffn_ratio = least_loss(pairs, heads, ffn, settings.round_to, settings.even)
        kept_heads = select_units(heads, heads_ratio, even=settings.even)
        return kept_heads, select_units(ffn, ffn_ratio, settings.round_to, settings.even)

    return select


def _exchanged(criterion: Criterion, layers: Sequence[LayerUnits], kept: Sequence[list[int]]) -> list[list[int]]:
    """Return the units that remain in each layer after the criterion's exchange, as many as before."""
    if criterion.exchange is None:
        return list(kept)
    exchange = resolve_name(criterion.exchange)
    return [exchange(layer, units) if units else [] for layer, units in zip(layers, kept, strict=True)]


def _scoring_batches(
    rows: Sequence[Row],
    task: TaskInfo,
    tokenizer: TextTokenizer,
    teacher_ids: NDArray[np.int64] | None,
    settings: Prune,
    seed: int,
    device: torch.device,
) -> Iterator[Batch]:
    """Yield as many batches of rows drawn from train as the settings ask for, or all rows if there are fewer."""
    check_sample(len(rows))
    drawn = np.sort(np.random.default_rng(seed).permutation(len(rows))[: BATCH_SIZE * settings.batches])
    encoded = encode_rows(rows, task, tokenizer)
    encoded.teacher_ids = teacher_ids
    examples, chosen = training_examples(encoded, task), encoded.examples_of(drawn)
    grouped = drawn if len(examples.lengths) == len(rows) else chosen
    size = max(1, BATCH_SIZE * len(grouped) // len(chosen))  # some kinds make several examples of a row
    for indices in bucketed_batches(examples.lengths[grouped], size, seed, epoch=0)[: settings.batches]:
        arrays = examples.batch(grouped[indices])
        yield {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


def _scoring_loss(model: PreTrainedModel, teacher: PreTrainedModel | None, task: TaskInfo) -> UnitLoss:
    """Return the task's loss, plus the distance to the teacher's outputs where there is a teacher."""
    objective: Objective = TaskObjective(task)
    if teacher is not None:
        objective = DistillObjective(model, teacher, Distill.model_validate(SCORING_LOSS), task)
    return lambda pruned, batch: torch.stack(list(objective(pruned, batch).values())).sum()
