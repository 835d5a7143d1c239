"""The last part of every export and quantization to ONNX: the folder around the graph, its session and its parity."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import onnx

import compress
from compress.export.parity import Parity, compare, made_up_sample
from compress.export.session import choose_session
from compress.folder import FolderInfo, VariantInfo, write_info
from compress.runtime import open_predictor
from compress.runtime.onnx_runtime import ONNX_FILE
from compress.runtime.predictor import Predictor
from compress.tasks.kind import Arrays

COMPANIONS = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocabulary.json",
)
"""What stands beside the weights of a model and must stand beside its exports too. By name: a folder from elsewhere may
hold the same weights in three more formats."""


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
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, work / name)
    batches = list(sample) if sample else made_up_sample(work, base.task)
    variant = variant.model_copy(update={"session": choose_session(work / ONNX_FILE, batches, variant.session)})
    info = base.model_copy(
        update={
            "step": variant.name,
            "made_by": f"compress {compress.__version__}",
            "inputs": tuple(given.name for given in proto.graph.input),
            "variant": variant,
            "parents": (),
        }
    )
    write_info(work, info)
    parity = compare(reference, open_predictor(work), batches, base.task)
    info = info.model_copy(update={"variant": variant.model_copy(update={"parity": parity.record()})})
    write_info(work, info)
    return info, parity
