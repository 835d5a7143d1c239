"""The tune step: session options of a built variant, chosen by timing on this machine."""

from __future__ import annotations

from pkgutil import resolve_name

from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import RECORD_FILE, share_folder
from compress.variants import Variant


def tune(context: StepContext, parent: str, variant: Variant, *, threads: int, seed: int) -> None:
    """Make a folder with the files of the built variant and the session options that are fastest here."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.pipeline.steps.build_variant import PARITY_BATCH, SAMPLE_ROWS, in_batches, sample_train

    assert variant.tuner is not None  # the plan has this step for such variants only
    source = context.inputs[parent]
    share_folder(source, context.work)
    (context.work / RECORD_FILE).unlink()
    rows = sample_train(load_prepared(context.inputs["data"]), source, SAMPLE_ROWS, seed)
    resolve_name(variant.tuner)(source, context.work, in_batches(rows, PARITY_BATCH), threads=threads)
