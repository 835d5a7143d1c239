"""What can be wrong with a task before any row is read, all of it at once."""

from __future__ import annotations

from collections.abc import Iterator

from compress.errors import Problem, nearest
from compress.recipe.schema import Task
from compress.tasks import KINDS


def task_problems(task: Task) -> list[Problem]:
    """Every fault of ``task`` that its settings alone show; paths start at ``task``."""
    return [*_kind_problems(task), *_label_problems(task), *_source_problems(task)]


def _kind_problems(task: Task) -> Iterator[Problem]:
    if task.kind not in KINDS:
        yield Problem(("task", "kind"), f"no task kind is called '{task.kind}'{nearest(task.kind, KINDS)}")
        return
    metrics = [metric.name for metric in KINDS[task.kind].metrics]
    if task.metric is not None and task.metric not in metrics:
        yield Problem(("task", "metric"), f"{task.kind} has no metric '{task.metric}'{nearest(task.metric, metrics)}")
    if task.metric == "f1" and task.labels is not None and len(task.labels) != 2:
        yield Problem(
            ("task", "metric"), f"f1 is for two classes and there are {len(task.labels)}; macro_f1 is for more"
        )


def _label_problems(task: Task) -> Iterator[Problem]:
    columns = (task.label,) if isinstance(task.label, str) else task.label
    if not columns:
        yield Problem(("task", "label"), "names no column")
    if len(columns) > 1 and task.kind != "multi_label":
        yield Problem(("task", "label"), f"{task.kind} has one label column; kind: multi_label has several")
    if len(set(columns)) < len(columns):
        yield Problem(("task", "label"), "names a column twice")
    if set(columns) & set(task.text):
        yield Problem(("task", "label"), f"the column '{(set(columns) & set(task.text)).pop()}' is also task.text")
    if len(set(task.text)) < len(task.text):
        yield Problem(("task", "text"), "names the same column twice")
    if len(set(task.slices)) < len(task.slices):
        yield Problem(("task", "slices"), "names the same column twice")
    if set(task.slices) & set(task.text):
        yield Problem(
            ("task", "slices"), f"the column '{(set(task.slices) & set(task.text)).pop()}' is the text itself"
        )
    if task.labels is not None:
        yield from _class_problems(task.labels, task, len(columns))


def _class_problems(labels: tuple[str, ...], task: Task, columns: int) -> Iterator[Problem]:
    if task.kind == "regression":
        yield Problem(("task", "labels"), "regression has no classes")
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        yield Problem(("task", "labels"), f"names {', '.join(map(repr, twice))} twice")
    if not all(label.strip() for label in labels):
        yield Problem(("task", "labels"), "a class needs a name")
    if task.kind == "classification" and len(labels) < 2:
        yield Problem(("task", "labels"), f"names {len(labels)} class: there is nothing to tell apart")
    if task.kind == "multi_label" and columns > 1 and len(labels) != columns:
        yield Problem(("task", "labels"), f"names {len(labels)} classes for {columns} columns")


def _source_problems(task: Task) -> Iterator[Problem]:
    data, path = task.data, ("task", "data")
    files = {role for role in ("train", "select", "test") if getattr(data, role)}
    if data.hub is not None and data.builtin is not None:
        yield Problem(path, "gives both a hub set and a builtin one")
    if data.builtin is not None and files:
        yield Problem(path, f"a builtin set brings its own rows; {', '.join(sorted(files))} cannot be given beside it")
    if data.builtin is None and "train" not in files:
        what = "the hub set's split" if data.hub is not None else "a file"
        yield Problem((*path, "train"), f"is missing: {what} to learn from")
    if "select" not in files and not data.select_share:
        yield Problem((*path, "select"), "is missing, and select_share: 0 holds nothing back for it")
    if "test" not in files and not data.test_share:
        yield Problem(
            (*path, "test"), "is missing: give labelled rows, or hold some of train back with test_share: 0.1"
        )
    held = sum(share for role, share in (("select", data.select_share), ("test", data.test_share)) if role not in files)
    if held >= 1:
        yield Problem(path, f"select_share and test_share hold back {held:.0%} of train: nothing is left")
