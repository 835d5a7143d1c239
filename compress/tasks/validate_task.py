"""Checks of a task's settings, all problems at once, before any row is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compress.errors import Problem, nearest
from compress.recipe.schema import Task
from compress.tasks import KINDS, Kind
from compress.tasks.parsing.columns import label_columns, soft_label_columns

KIND_SETTINGS = (
    "labels",
    "first_label",
    "soft_labels",
    "long",
    "overlap",
    "max_windows",
    "max_answer",
    "scheme",
    "pooling",
    "range",
    "negatives",
    "hard_negatives",
)
"""Settings that only the kinds read which list them in `settings`."""
WINDOW_SETTINGS = ("overlap", "max_windows")


def task_problems(task: Task) -> list[Problem]:
    """Return every problem of a task that its settings alone show; paths start at ``task``."""
    if task.kind not in KINDS:
        unknown = Problem(("task", "kind"), f"no task kind is called '{task.kind}'{nearest(task.kind, KINDS)}")
        return [unknown, *_column_problems(task), *_source_problems(task)]
    kind = KINDS[task.kind]
    about_kind = [*_kind_problems(task, kind), *_setting_problems(task, kind), *kind.setting_problems(task)]
    return [*about_kind, *_column_problems(task), *_source_problems(task)]


def _kind_problems(task: Task, kind: Kind) -> Iterator[Problem]:
    """Yield a metric that the kind does not have, and too few or too many columns."""
    metrics = [metric.name for metric in kind.metrics]
    if task.metric is not None and task.metric not in metrics:
        yield Problem(("task", "metric"), f"{kind.name} has no metric '{task.metric}'{nearest(task.metric, metrics)}")
    least, most = kind.text_columns
    if len(task.text) < least or (most is not None and len(task.text) > most):
        span = "1 column" if (least, most) == (1, 1) else f"{_span(least, most)} columns"
        yield Problem(("task", "text"), f"{kind.name} reads {span} of text, got {len(task.text)}")
    if kind.max_label_columns is not None and len(label_columns(task)) > kind.max_label_columns:
        several = [name for name, other in KINDS.items() if other.max_label_columns is None]
        limit = "one label column" if kind.max_label_columns == 1 else f"at most {kind.max_label_columns} label columns"
        yield Problem(("task", "label"), f"{kind.name} has {limit}; kind: {several[0]} has several")
    if task.data.corpus is not None and not kind.searches:
        yield Problem(("task", "data", "corpus"), f"{kind.name} searches no documents")


def _span(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"


def _setting_problems(task: Task, kind: Kind) -> Iterator[Problem]:
    """Yield settings that would have no effect, and contradictory ones."""
    for name in KIND_SETTINGS:
        if name not in kind.settings and _is_set(task, name):
            yield Problem(("task", name), _unread_message(name, kind))
    cut = "long" in kind.settings and task.long == "cut"
    for name in WINDOW_SETTINGS if cut else ():
        if _is_set(task, name):
            yield Problem(("task", name), "applies to windows, and long: cut has none; use long: mean")
    if task.overlap is not None and task.overlap >= task.max_length:
        message = f"neighbouring windows of {task.max_length} tokens (max_length) cannot share {task.overlap}"
        yield Problem(("task", "overlap"), message)
    if task.negatives is not None and task.negatives in (*task.text, *label_columns(task)):
        yield Problem(("task", "negatives"), f"the column '{task.negatives}' is also task.text or task.label")


def _is_set(task: Task, name: str) -> bool:
    default: Any = Task.model_fields[name].get_default()
    return bool(getattr(task, name) != default)


def _unread_message(name: str, kind: Kind) -> str:
    if name in ("labels", "first_label"):
        return f"{kind.name} has no classes"
    if name == "soft_labels" and kind.name == "regression":
        return "has no effect for regression: another model's score is a number, so use it as the label (task.label)"
    readers = [other.name for other in KINDS.values() if name in other.settings]
    return f"has no effect for {kind.name}" + (f"; it is for {', '.join(readers)}" if readers else "")


def _column_problems(task: Task) -> Iterator[Problem]:
    columns = label_columns(task)
    if not columns:
        yield Problem(("task", "label"), "names no column")
    if len(set(columns)) < len(columns):
        yield Problem(("task", "label"), "names a column twice")
    if set(columns) & set(task.text):
        yield Problem(("task", "label"), f"the column '{(set(columns) & set(task.text)).pop()}' is also task.text")
    if len(set(task.text)) < len(task.text):
        yield Problem(("task", "text"), "names the same column twice")
    if len(set(task.slices)) < len(task.slices):
        yield Problem(("task", "slices"), "names the same column twice")
    yield from _soft_label_problems(task)
    if set(task.slices) & set(task.text):
        yield Problem(
            ("task", "slices"), f"the column '{(set(task.slices) & set(task.text)).pop()}' is the text itself"
        )
    yield from _class_problems(task.labels or ())


def _soft_label_problems(task: Task) -> Iterator[Problem]:
    """Yield columns of probabilities that have another use too, or whose classes have no known order."""
    path, columns, answers = ("task", "soft_labels"), soft_label_columns(task), label_columns(task)
    if task.soft_labels == ():
        yield Problem(path, "names no column")
    if len(set(columns)) < len(columns):
        yield Problem(path, "names a column twice")
    if both := set(columns) & {*answers, *task.text}:
        yield Problem(path, f"the column '{both.pop()}' is also task.text or task.label")
    classes = task.labels or (answers if len(answers) > 1 else ())
    if not columns or "soft_labels" not in KINDS[task.kind].settings:
        return
    if not classes:
        yield Problem(
            path, "needs task.labels, the classes: a list of probabilities follows their order, a mapping their names"
        )
    elif len(columns) > 1 and len(columns) != len(classes):
        yield Problem(path, f"names {len(columns)} columns for {len(classes)} classes")


def _class_problems(labels: tuple[str, ...]) -> Iterator[Problem]:
    duplicates = sorted({label for label in labels if labels.count(label) > 1})
    if duplicates:
        yield Problem(("task", "labels"), f"names {', '.join(map(repr, duplicates))} twice")
    if not all(label.strip() for label in labels):
        yield Problem(("task", "labels"), "a class needs a name")


def _source_problems(task: Task) -> Iterator[Problem]:
    data, path = task.data, ("task", "data")
    files = {role for role in ("train", "select", "test") if getattr(data, role)}
    if data.hub is not None and data.builtin is not None:
        yield Problem(path, "gives both a hub set and a builtin one")
    if data.builtin is not None and files:
        yield Problem(path, f"a builtin set has its own rows; {', '.join(sorted(files))} cannot be given with it")
    if data.builtin is None and "train" not in files:
        source = "the hub set's split" if data.hub is not None else "a file"
        yield Problem((*path, "train"), f"is missing: {source} to learn from")
    if "select" not in files and not data.select_share:
        yield Problem((*path, "select"), "is missing, and select_share: 0 splits nothing off train for it")
    if "test" not in files and not data.test_share:
        yield Problem((*path, "test"), "is missing: give labelled rows, or split some off train with test_share: 0.1")
    held = sum(share for role, share in (("select", data.select_share), ("test", data.test_share)) if role not in files)
    if held >= 1:
        yield Problem(path, f"select_share and test_share split off {held:.0%} of train: nothing is left")
