"""Task kinds: one file each, numpy alone, in one explicit table.

A new kind is a file with an object that satisfies the contract of ``base.py``, and its line here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compress.errors import UsageError, nearest
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Encode, Encoding, Metric, RawRow, Row
from compress.tasks.kind import Kind
from compress.tasks.kinds.classification import Classification
from compress.tasks.kinds.multi_label import MultiLabel
from compress.tasks.kinds.multiple_choice import MultipleChoice
from compress.tasks.kinds.question_answering import QuestionAnswering
from compress.tasks.kinds.ranking import Ranking
from compress.tasks.kinds.regression import Regression
from compress.tasks.kinds.retrieval import Retrieval
from compress.tasks.kinds.text_similarity import Similarity
from compress.tasks.kinds.token_classification import TokenClassification
from compress.tasks.presets import NAMED_TASKS

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task

__all__ = [
    "KINDS",
    "TASK_NAMES",
    "Encode",
    "Encoding",
    "Kind",
    "Metric",
    "RawRow",
    "Row",
    "kind_of",
    "primary_metric",
    "task_info",
]

KINDS: dict[str, Kind] = {
    "classification": Classification(),
    "multi_label": MultiLabel(),
    "multiple_choice": MultipleChoice(),
    "ranking": Ranking(),
    "regression": Regression(),
    "similarity": Similarity(),
    "retrieval": Retrieval(),
    "question_answering": QuestionAnswering(),
    "token_classification": TokenClassification(),
}


TASK_NAMES: Mapping[str, Mapping[str, Any]] = {
    "task kinds": KINDS,
    "named tasks": NAMED_TASKS,
    "defaults of kinds": {name: kind.defaults for name, kind in KINDS.items()},
}
"""The names that are valid in a recipe's task, and the keys that they stand for."""


def kind_of(task: Task | TaskInfo) -> Kind:
    """Return the kind that a task names."""
    if task.kind not in KINDS:
        raise UsageError(f"no task kind is called '{task.kind}'{nearest(task.kind, KINDS)}.")
    return KINDS[task.kind]


def primary_metric(task: Task | TaskInfo) -> Metric:
    """Return the primary metric: the one that the task names, or the kind's first."""
    kind = kind_of(task)
    by_name = {metric.name: metric for metric in kind.metrics}
    name = task.metric or kind.metrics[0].name
    if name not in by_name:
        raise UsageError(f"{task.kind} has no metric called '{name}'{nearest(name, by_name)}.")
    return by_name[name]


def task_info(task: Task, labels: Sequence[str]) -> TaskInfo:
    """Return the part of a task that model folders store, once its labels are known.

    Its name is that of a named task, else the kind: prepared rows, and models that learn them, do not depend on what a
    user calls the task.
    """
    shared = {name: getattr(task, name) for name in TaskInfo.model_fields if name in type(task).model_fields}
    known = {
        "name": task.name if task.name in NAMED_TASKS else task.kind,
        "labels": tuple(labels),
        "metric": primary_metric(task).name,
        "overlap": task.max_length // 3 if task.overlap is None else task.overlap,
    }
    return TaskInfo(**{**shared, **known})
