"""Calibration from a file of texts, for models that are quantized outside a run and so without rows of train."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from compress.data.tokenizer import TextTokenizer
from compress.errors import UsageError
from compress.export.build_context import Batches
from compress.export.comparison.golden_inputs import bounded, single_texts
from compress.model_info import TaskInfo
from compress.tasks import kind_of

BATCH = 8


def calibration_batches(lines: Iterable[tuple[str, str]], folder: Path, task: TaskInfo | None) -> Batches:
    """Return texts as batches of a model folder's inputs.

    Args:
        lines: where each text is from, and the text; those that are read together have tabs between them, as for
            `predict`.
        folder: with the tokenizer.
        task: the model's task; without one it is given single texts.

    Raises:
        UsageError: the task does not read such a text; the message names the line.
    """
    tokens = TextTokenizer.load(folder)
    task = task or bounded(single_texts(), tokens.longest)
    kind, several = kind_of(task), len(task.text) > 1
    examples = []
    for origin, line in lines:
        try:
            row = kind.from_input(tuple(line.split("\t")) if several and "\t" in line else line, task)
        except UsageError as error:
            raise UsageError(f"{origin}: {error.message}", hint=error.hint) from error
        examples += [example for example in kind.examples(row, task, tokens) if len(example["input_ids"])]
    return [kind.collate(examples[start : start + BATCH], tokens.pad_id) for start in range(0, len(examples), BATCH)]
