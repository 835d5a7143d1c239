"""The export and quantize steps: build one variant of a model and check it against its source."""

from __future__ import annotations

from compress.pipeline.step_context import StepContext
from compress.variants import Variant

PARITY_ROWS, PARITY_BATCH = 128, 8
"""Rows of train, and rows a batch, on which a variant's outputs are compared with its source's."""


def build(context: StepContext, parent: str, variant: Variant) -> None:
    """Export or quantize one model; its answers are compared with its parent's on rows of train."""
    from compress.data.encode import by_length, encode_rows
    from compress.data.splits.prepare_splits import load_prepared
    from compress.data.tokenizer import TextTokenizer

    roles, source = load_prepared(context.inputs["data"]), context.inputs[parent]
    task = roles.info.task_info
    rows = roles.rows("train")
    few = [rows[index] for index in range(min(PARITY_ROWS, len(rows)))]
    encoded = encode_rows(few, task, TextTokenizer.load(source))
    sample = [encoded.batch(indices) for indices in by_length(encoded.lengths, PARITY_BATCH)]
    variant.make(source, context.work, sample=sample, console=context.console)
