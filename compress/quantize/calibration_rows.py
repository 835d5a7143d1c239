"""Sample rows of quantizers: those on which a static method observes the ranges of activations, and those it scores.

They come from train, or from a file of texts where a model is quantized outside a run. The verdict on the result uses
select; scores on rows of train only decide what is tried next.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from compress.data.encode import encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.errors import UsageError
from compress.export.build_context import Batches, BuildContext
from compress.export.comparison.golden_inputs import bounded, single_texts
from compress.measure.predict_rows import Forward, predict_encoded
from compress.model_folder.model_info import TaskInfo, find_info
from compress.model_folder.sentence_transformers_files import default_prompt
from compress.runtime.text_model import with_prompt
from compress.tasks import kind_of, primary_metric
from compress.tasks.base import Arrays, TaskInput

LEAST_ROWS = 2
"""Ranges of a single row say nothing about others."""


def calibration_rows(context: BuildContext) -> list[Arrays]:
    """Return the calibration rows of a build, each as a batch of its own.

    Raises:
        UsageError: there are too few.
    """
    rows = list(single_rows(context.calibration()))
    require_rows(context.variant.method, len(rows))
    return rows


def require_rows(method: str | None, count: int) -> None:
    """Refuse too few calibration rows for a method."""
    if count < LEAST_ROWS:
        raise UsageError(
            f"{method} takes its ranges from sample rows; got {count}, expected at least {LEAST_ROWS}.",
            hint="a run draws them from train; compress export reads them from --calibration FILE",
        )


def single_rows(batches: Sequence[Arrays]) -> Iterator[Arrays]:
    """Yield each row alone and without padding, which would widen the ranges."""
    for batch in batches:
        arrays = {name: array for name, array in batch.items() if array.shape == batch["input_ids"].shape}
        for index, length in enumerate(batch["attention_mask"].sum(axis=-1)):
            yield {name: array[index : index + 1, :length] for name, array in arrays.items()}


TEXTS_TOGETHER = 8


def calibration_batches(lines: Iterable[tuple[str, str]], folder: Path, task: TaskInfo | None) -> Batches:
    """Return texts as batches of a model folder's inputs.

    Args:
        lines: where each text is from, and the text; those that are read together have tabs between them, as for
            `predict`, which writes a default prompt before each text too.
        folder: with the tokenizer.
        task: the model's task; without one it is given single texts.

    Raises:
        UsageError: the task does not read such a text; the message names the line.
    """
    tokens = TextTokenizer.load(folder)
    task = task or bounded(single_texts(), tokens.longest)
    kind, several, prompt = kind_of(task), len(task.text) > 1, default_prompt(folder)
    examples = []
    for origin, line in lines:
        given: TaskInput = tuple(line.split("\t")) if several and "\t" in line else line
        try:
            row = kind.from_input(with_prompt(prompt, given) if prompt else given, task)
        except UsageError as error:
            raise UsageError(f"{origin}: {error.message}", hint=error.hint) from error
        examples += [example for example in kind.examples(row, task, tokens) if len(example["input_ids"])]
    return [
        kind.collate(examples[start : start + TEXTS_TOGETHER], tokens.pad_id)
        for start in range(0, len(examples), TEXTS_TOGETHER)
    ]


SCORED_TOGETHER = 32
LEAST_SCORED = 2


def train_scorer(context: BuildContext) -> Callable[[Forward], float]:
    """Return a function that scores a model on rows of train in the task's primary metric, larger being better.

    Raises:
        UsageError: the rows or the task cannot be scored.
    """
    method, rows, info = context.variant.method, context.train_rows(), find_info(context.source)
    compares = f"{method} compares scores on rows of train"
    if len(rows) < LEAST_SCORED or info is None or info.task is None:
        raise UsageError(f"{compares}; got {len(rows)}, expected at least {LEAST_ROWS}.", hint="use it in a recipe")
    task = info.task
    kind, metric = kind_of(task), primary_metric(task)
    if kind.searches:
        raise UsageError(f"{compares}, and {task.kind} is scored on whole collections only.")
    gold = kind.gold(rows)
    if metric.needs_varied_labels and not kind.has_varied_labels(gold):
        raise UsageError(f"{compares}, where {metric.name} is not defined: all {len(rows)} labels are equal.")
    encoded = encode_rows(rows, task, TextTokenizer.load(context.source))

    def score(run: Forward) -> float:
        predictions = kind.apply_threshold(predict_encoded(run, encoded, rows, task, SCORED_TOGETHER), task)
        value = kind.score(predictions, gold, task)[metric.name]
        return float(value if metric.larger_is_better else -value)

    return score
