"""Writes the folder around an exported graph: config, tokenizer, compress.json and parity with its source."""

from __future__ import annotations

import math
import shutil

import compress
from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.parity import Parity, compare_all, generated_batches
from compress.model_info import COMPANIONS, FolderInfo, VariantInfo, write_info
from compress.runtime import open_predictor
from compress.runtime.predictor import ONE_THREAD, Placement, Predictor


def variant_folder_info(base: FolderInfo, variant: VariantInfo, inputs: tuple[str, ...] = ()) -> FolderInfo:
    """Return the compress.json of a variant: that of its source, with the variant and its ``inputs`` if they differ."""
    made_by = f"compress {compress.__version__}"
    update = {"step": variant.name, "made_by": made_by, "variant": variant, "inputs": inputs or base.inputs}
    return base.model_copy(update={**update, "parents": ()})


def write_variant(
    context: BuildContext,
    info: FolderInfo,
    reference: Predictor,
    placement: Placement = ONE_THREAD,
    *,
    tolerance: float = math.inf,
) -> tuple[FolderInfo, Parity]:
    """Complete the folder of a graph that is already written, and compare its outputs with its source's.

    Args:
        context: of the build; its work folder holds the graph.
        info: the content of compress.json, without parity.
        reference: the model that the outputs should agree with.
        placement: where the new folder can run.
        tolerance: differences of outputs must be smaller; infinite where the gate decides what they cost.

    Raises:
        ModelError: the outputs differ by more, or are not numbers.
    """
    assert info.variant is not None
    for name in COMPANIONS:
        if (context.source / name).is_file():
            shutil.copyfile(context.source / name, context.work / name)
    write_info(context.work, info)
    batches = context.parity or generated_batches(context.work, info.task, context.seed)
    parity = compare_all(reference, open_predictor(context.work, placement), batches, info.task)
    if not parity.max_abs_difference < tolerance:  # written so that NaN fails too
        raise ModelError(
            f"the outputs of {info.variant.name} differ from those of its source, {context.source}, by up to "
            f"{parity.max_abs_difference:.2g}; expected less than {tolerance:g}."
        )
    alone = f"; a row alone or in a batch differs by up to {parity.alone_or_in_batch:.2g}"
    context.console.note(f"{info.variant.name}: {parity}{alone if info.variant.batch_sensitive else ''}")
    info = info.model_copy(update={"variant": info.variant.model_copy(update={"parity": parity.record()})})
    write_info(context.work, info)
    return info, parity
