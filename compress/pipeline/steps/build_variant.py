"""The export, quantize and tune steps: build a variant, compare it with its source, and choose its session options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.data.encode import EncodedRows, batches_by_length, encode_sample
from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.data.splits.split_indices import stratified_sample
from compress.data.tokenizer import TextTokenizer
from compress.export import BuildContext
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import share_folder
from compress.storage.file_names import RECORD_FILE
from compress.variants import Variant

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Sample = tuple[EncodedRows, NDArray[np.int64]]
    """Encoded rows, and the drawn examples among them."""

SAMPLE_ROWS = 128
"""Rows of train on which outputs are compared."""

SCORED_ROWS = 512
"""Rows of train on which methods that try several configurations compare scores."""

CANDIDATE_ROWS = 4096
"""Random rows of train among which these are drawn in the proportions of the classes; reading all takes too long."""

PARITY_BATCH = 8
"""Rows a batch where no target runs the variant."""


def build(
    context: StepContext,
    parent: str,
    variant: Variant,
    *,
    batches: Sequence[int],
    seed: int,
    settings: Mapping[str, Any],
) -> None:
    """Export or quantize one model.

    Args:
        context: of the step.
        parent: the step whose folder it is made from.
        variant: what to build.
        batches: batch sizes of the targets that run it; outputs are compared at each.
        seed: of the rows that are drawn, and of the method.
        settings: of the method.
    """
    prepared = load_prepared(context.inputs["data"])
    sizes = batches or [PARITY_BATCH]
    sample = sample_train(prepared, context.inputs[parent], max(SAMPLE_ROWS, *sizes), seed)
    variant.make(build_context(context, parent, variant, prepared, sample, sizes, seed, settings))


def build_context(
    context: StepContext,
    parent: str,
    variant: Variant,
    prepared: PreparedData,
    sample: Sample,
    sizes: Sequence[int],
    seed: int,
    settings: Mapping[str, Any],
) -> BuildContext:
    """Return the input of a build from the folder of ``parent`` into the step's own.

    ``sample`` are rows of train: a builder takes its ranges from them, and compares outputs on them in batches of
    ``sizes``.
    """
    train = prepared.rows("train")
    return BuildContext(
        variant=variant.info,
        source=context.inputs[parent],
        work=context.work,
        settings=settings,
        seed=seed,
        console=context.console,
        parity={size: in_batches(sample, size) for size in sizes},
        calibration=lambda: in_batches(sample, PARITY_BATCH),
        train_rows=lambda: [train[int(index)] for index in draw_train(prepared, SCORED_ROWS, seed)],
    )


def tune(context: StepContext, parent: str, variant: Variant, *, threads: int, seed: int) -> None:
    """Make a folder with the files of the built variant and the session options that are fastest here."""
    assert variant.tuner is not None  # the plan has this step for such variants only
    source = context.inputs[parent]
    share_folder(source, context.work)
    (context.work / RECORD_FILE).unlink()
    sample = sample_train(load_prepared(context.inputs["data"]), source, SAMPLE_ROWS, seed)
    resolve_name(variant.tuner)(source, context.work, in_batches(sample, PARITY_BATCH), threads=threads)


def sample_train(prepared: PreparedData, tokenizer: Path, count: int, seed: int) -> Sample:
    """Encode ``count`` rows of train with the tokenizer of a model folder, drawn in the proportions of the classes."""
    chosen = draw_train(prepared, count, seed)
    task, tokens = prepared.info.task_info, TextTokenizer.load(tokenizer)
    return encode_sample(prepared.rows("train"), chosen, task, tokens)


def draw_train(prepared: PreparedData, count: int, seed: int) -> NDArray[np.int64]:
    """Return the indices of ``count`` rows of train, drawn in the proportions of the classes."""
    train, task = prepared.rows("train"), prepared.info.task_info
    candidates = np.random.default_rng(seed).permutation(len(train))[: max(CANDIDATE_ROWS, count)]
    labels = [train[int(index)].get("label") for index in candidates]
    classes = [label if task.labels and isinstance(label, (int, str)) else None for label in labels]
    drawn: NDArray[np.int64] = candidates[stratified_sample(classes, count, seed)]
    return drawn


def in_batches(sample: Sample, size: int) -> list[Any]:
    """Return padded batches of ``size`` examples of similar length."""
    encoded, examples = sample
    batches = batches_by_length(encoded.lengths[examples], size)
    return [encoded.batch(examples[indices]) for indices in batches]
