"""Calibration from a file of texts, for models that are quantized outside a run and so without rows of train."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from compress.data.tokenizer import TextTokenizer
from compress.export.build_context import Batches
from compress.export.golden_inputs import examples_of, single_texts
from compress.model_info import TaskInfo
from compress.tasks import kind_of

BATCH = 8


def calibration_batches(lines: Iterable[str], folder: Path, task: TaskInfo | None) -> Batches:
    """Return texts as batches of a model folder's inputs.

    Args:
        lines: a text each; texts that are read together have tabs between them, as for `predict`.
        folder: with the tokenizer.
        task: the model's task; without one it is given single texts.
    """
    tokens, task = TextTokenizer.load(folder), task or single_texts()
    kind, several = kind_of(task), len(task.text) > 1
    inputs = [tuple(line.split("\t")) if several and "\t" in line else line for line in lines]
    examples = [example for given in inputs for example in examples_of(given, task, tokens)]
    return [kind.collate(examples[start : start + BATCH], tokens.pad_id) for start in range(0, len(examples), BATCH)]
