"""Simple baselines: a model that costs milliseconds a text should be clearly better.

Every task kind names one, its `baseline`; a new one is a file with one function.
"""

from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any

from numpy.typing import NDArray

from compress.model_folder.model_info import TaskInfo
from compress.tasks import kind_of
from compress.tasks.base import Row

Predict = Callable[[Sequence[Row], Sequence[Row], TaskInfo, int, Sequence[Row]], NDArray[Any]]
"""(train rows, test rows, task, seed, documents to search) -> predictions in the form of the task's kind."""


def baseline_predictions(
    train: Sequence[Row], test: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Return the predictions of the kind's baseline on ``test``."""
    predict: Predict = resolve_name(kind_of(task).baseline.path)
    return predict(train, test, task, seed, documents)
