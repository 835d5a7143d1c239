"""What stands around every exported graph: config, tokenizer, compress.json, and how far its answers are off."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import compress
from compress.export.parity import Parity, compare, made_up_sample
from compress.model_info import COMPANIONS, FolderInfo, VariantInfo, write_info
from compress.runtime import open_predictor
from compress.runtime.predictor import ONE_THREAD, Placement, Predictor
from compress.tasks.base import Arrays


def copy_companions(source: Path, work: Path) -> None:
    """Copy config and tokenizer."""
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, work / name)


def variant_folder_info(base: FolderInfo, variant: VariantInfo) -> FolderInfo:
    """What a variant's folder says of itself, from what its source says."""
    made_by = f"compress {compress.__version__}"
    return base.model_copy(update={"step": variant.name, "made_by": made_by, "variant": variant, "parents": ()})


def write_with_parity(
    work: Path,
    info: FolderInfo,
    reference: Predictor,
    sample: Sequence[Arrays] | None,
    placement: Placement = ONE_THREAD,
) -> tuple[FolderInfo, Parity]:
    """Write compress.json, compare the folder's answers with those of what it was made from, and note them there.

    Args:
        work: a folder with everything but compress.json.
        info: what it says, without parity.
        reference: the model that it should agree with.
        sample: batches to compare on, made up where none are given.
        placement: where the folder can run.
    """
    assert info.variant is not None
    write_info(work, info)
    batches = list(sample) if sample else made_up_sample(work, info.task)
    parity = compare(reference, open_predictor(work, placement), batches, info.task)
    info = info.model_copy(update={"variant": info.variant.model_copy(update={"parity": parity.record()})})
    write_info(work, info)
    return info, parity
