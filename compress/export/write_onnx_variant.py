"""The last part of every export and quantization to ONNX: the folder around the graph, its session and its parity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from compress.export.parity import Parity, made_up_sample
from compress.export.tune_ort_session import choose_session
from compress.export.write_variant import copy_companions, variant_folder_info, write_with_parity
from compress.model_info import FolderInfo, VariantInfo
from compress.runtime.onnx_runtime import ONNX_FILE
from compress.runtime.predictor import Predictor
from compress.tasks.base import Arrays


def finish(
    proto: onnx.ModelProto,
    source: Path,
    work: Path,
    base: FolderInfo,
    variant: VariantInfo,
    reference: Predictor,
    sample: Sequence[Arrays] | None,
) -> tuple[FolderInfo, Parity]:
    """Write ``proto`` as a folder that predicts by itself, and compare it with what it was made from.

    Args:
        proto: the graph.
        source: the folder whose config and tokenizer go along.
        work: an existing folder to write into.
        base: what the source says of itself (task, shape).
        variant: what the graph is, with session settings it cannot do without; the others, and parity, are found here.
        reference: the model that it should agree with.
        sample: batches to compare on, made up where none are given.
    """
    onnx.save(proto, work / ONNX_FILE)
    copy_companions(source, work)
    batches = list(sample) if sample else made_up_sample(work, base.task)
    variant = variant.model_copy(update={"session": choose_session(work / ONNX_FILE, batches, variant.session)})
    inputs = tuple(given.name for given in proto.graph.input)
    return write_with_parity(
        work, variant_folder_info(base, variant).model_copy(update={"inputs": inputs}), reference, batches
    )
