"""Scores on rows of train, for methods that compare several ways to quantize a model.

The verdict on the result uses select; these rows only decide what is tried next.
"""

from __future__ import annotations

from collections.abc import Callable

from compress.data.encode import encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.errors import UsageError
from compress.export.build_context import BuildContext
from compress.measure.predict_rows import Forward, predict_encoded
from compress.model_info import find_info
from compress.tasks import kind_of, primary_metric

BATCH = 32
LEAST_ROWS = 2


def train_scorer(context: BuildContext) -> Callable[[Forward], float]:
    """Return a function that scores a model on rows of train in the task's primary metric, larger being better.

    Raises:
        UsageError: the rows or the task cannot be scored.
    """
    method, rows, info = context.variant.method, context.train_rows(), find_info(context.source)
    compares = f"{method} compares scores on rows of train"
    if len(rows) < LEAST_ROWS or info is None or info.task is None:
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
        predictions = kind.apply_threshold(predict_encoded(run, encoded, rows, task, BATCH), task)
        value = kind.score(predictions, gold, task)[metric.name]
        return float(value if metric.larger_is_better else -value)

    return score
