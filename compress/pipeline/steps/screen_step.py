"""The screening of a model's quantized files, and the step that admits one of them to scoring and timing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compress.errors import CompressError, ScreenedOut
from compress.measure.resources.footprint import footprint
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import RECORD_FILE, share_folder
from compress.pipeline.steps.build_variant import PARITY_BATCH, SAMPLE_ROWS, in_batches, sample_train
from compress.select.quantization_loss import Fallback
from compress.select.screening import SCREENING_FILE, ScreenedFile, read_screening, screen
from compress.storage.atomic_write import write_model

ADMISSION = "admit"
"""The kind of the steps that follow a screening."""


def screen_files(context: StepContext, files: Mapping[str, str], threads: int, seed: int) -> None:
    """Compare the quantized files of a model by their losses on select, a short timing and their sizes.

    Args:
        context: of the step.
        files: by variant, the step whose folder holds its file, the first method's first; some may have failed.
        threads: of the timing.
        seed: of the rows among which the timed one is.
    """
    from compress.data.splits.prepare_splits import load_prepared
    from compress.export.short_timing import median_row, time_folders

    built = {variant: context.inputs[step] for variant, step in files.items() if step in context.inputs}
    if not built:
        raise CompressError("there is no quantized file to compare.")
    folders = list(built.values())
    rows = sample_train(load_prepared(context.inputs["data"]), folders[0], SAMPLE_ROWS, seed)
    seconds = time_folders(folders, median_row(in_batches(rows, PARITY_BATCH)), threads)
    screened = {
        variant: ScreenedFile(
            variant=variant,
            loss=Fallback.model_validate(context.records[files[variant]].measured).final,
            milliseconds=round(1e3 * time, 4),
            bytes_total=footprint(folder).bytes_total,
        )
        for (variant, folder), time in zip(built.items(), seconds, strict=True)
    }
    first = screened.pop(next(iter(files)), None)
    result = screen(first, tuple(screened.values()))
    write_model(context.work / SCREENING_FILE, result)
    kept = [variant for variant in files if variant in screened and variant not in result.reasons]
    beside = f" beside {first.variant}" if first else ""
    context.console.note(f"kept{beside}: {', '.join(kept) or 'none'}")


def admit(context: StepContext, parent: str, screening: str, variant: str) -> None:
    """Pass a file on if the screening kept it.

    Raises:
        ScreenedOut: it did not; the message says why.
    """
    if reason := screened_out(context.inputs[screening], variant):
        raise ScreenedOut(reason)
    share_folder(context.inputs[parent], context.work)
    (context.work / RECORD_FILE).unlink()


def screened_out(screening: Path, variant: str) -> str | None:
    """Return why the screening in a folder did not keep a file; None where it did."""
    reason = read_screening(screening).reasons.get(variant)
    return f"screened out: {reason}" if reason else None
