"""Checks of a task: its settings, all problems at once, before any row is read; and warnings about labels of rows.

Warnings are worded alike where the data are prepared and in reports.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from compress.errors import Problem, nearest, pluralize
from compress.recipe.task_schema import Data, Task
from compress.tasks import KINDS, Kind
from compress.tasks.parsing.columns import label_columns, soft_label_columns

TEXTS_ALONE = (
    "give a file with columns (csv, tsv, jsonl …), or the format where only the name ends in .txt (format: tsv); texts"
    " alone can be unlabelled"
)


def task_problems(task: Task) -> list[Problem]:
    """Return every problem of a task that its settings alone show; paths start at ``task``."""
    kind = KINDS.get(task.kind)
    if kind is None:
        about_kind = [Problem(("task", "kind"), f"no task kind is called '{task.kind}'{nearest(task.kind, KINDS)}")]
    else:
        about_kind = [*_kind_problems(task, kind), *_setting_problems(task, kind), *kind.setting_problems(task)]
    return [*about_kind, *_column_problems(task), *_source_problems(task)]


def _kind_problems(task: Task, kind: Kind) -> Iterator[Problem]:
    """Yield a metric that the kind does not have, and too few or too many columns."""
    metrics = [metric.name for metric in kind.metrics]
    if task.metric is not None and task.metric not in metrics:
        yield Problem(("task", "metric"), f"{kind.name} has no metric '{task.metric}'{nearest(task.metric, metrics)}")
    least, most = kind.text_columns
    if len(task.text) < least or (most is not None and len(task.text) > most):
        span = f"{least} or more" if most is None else f"{least} to {most}" if most > least else str(least)
        yield Problem(("task", "text"), f"{kind.name} reads {span} columns of text, got {len(task.text)}")
    labels = len(label_columns(task))
    if kind.max_label_columns is not None and labels > kind.max_label_columns:
        yield Problem(
            ("task", "label"), f"{kind.name} has {pluralize(kind.max_label_columns, 'label column')}, got {labels}"
        )
    if task.data.corpus is not None and not kind.searches:
        yield Problem(("task", "data", "corpus"), f"{kind.name} searches no documents")


def _setting_problems(task: Task, kind: Kind) -> Iterator[Problem]:
    """Yield settings that would have no effect, and contradictory ones."""
    settings = sorted({name for other in KINDS.values() for name in other.settings})
    given = [name for name in settings if getattr(task, name) != Task.model_fields[name].get_default()]
    for name in given:
        if name not in kind.settings:
            readers = ", ".join(other.name for other in KINDS.values() if name in other.settings)
            yield Problem(("task", name), f"has no effect for {kind.name}; it is for {readers}")
        elif name in ("overlap", "max_windows") and "long" in kind.settings and task.long == "cut":
            yield Problem(("task", name), "applies to windows, and long: cut has none; use long: mean")
    if task.overlap is not None and task.overlap >= task.max_length:
        message = f"neighbouring windows of {task.max_length} tokens (max_length) cannot share {task.overlap}"
        yield Problem(("task", "overlap"), message)
    columns, answers = soft_label_columns(task), label_columns(task)
    if task.data.group in answers and not kind.searches:  # queries of one document may well be of one role
        yield Problem(("task", "data", "group"), "is the label: all rows of a class would be of one role")
    if columns and "soft_labels" in kind.settings:
        classes = task.labels or (answers if len(answers) > 1 else ())
        if not classes:
            yield Problem(("task", "soft_labels"), "needs task.labels, the classes in the order of the probabilities")
        elif len(columns) > 1 and len(columns) != len(classes):
            yield Problem(("task", "soft_labels"), f"names {len(columns)} columns for {len(classes)} classes")


def _column_problems(task: Task) -> Iterator[Problem]:
    """Yield keys that name no column, one column twice or one with another use; and classes without distinct names."""
    text, label, soft_labels = set(task.text), label_columns(task), soft_label_columns(task)
    negatives = () if task.negatives is None else (task.negatives,)
    for key, columns, others in (
        ("text", task.text, set()),
        ("label", label, text),
        ("soft_labels", soft_labels, {*text, *label}),
        ("negatives", negatives, {*text, *label}),
        ("slices", task.slices, text),
    ):
        if key in ("label", "soft_labels") and getattr(task, key) == ():
            yield Problem(("task", key), "names no column")
        if len(set(columns)) < len(columns):
            yield Problem(("task", key), "names the same column twice")
        if both := others.intersection(columns):
            yield Problem(("task", key), f"the column '{both.pop()}' is also task.text or task.label")
    labels = task.labels or ()
    if duplicates := sorted({label for label in labels if labels.count(label) > 1}):
        yield Problem(("task", "labels"), f"names {', '.join(map(repr, duplicates))} twice")
    if not all(label.strip() for label in labels):
        yield Problem(("task", "labels"), "a class needs a name")


def _source_problems(task: Task) -> Iterator[Problem]:
    data, path = task.data, ("task", "data")
    files = {role for role in ("train", "select", "test") if getattr(data, role)}
    for role in sorted(files) if data.hub is None else ():
        entries = getattr(data, role)
        for entry in (entries,) if isinstance(entries, str) else entries:
            if data.format == "txt" or (data.format is None and Path(entry).name.endswith((".txt", ".txt.gz"))):
                yield Problem((*path, role), f"{entry} holds texts without labels; {TEXTS_ALONE}")
    yield from _files_of_hub_sets(data)
    if data.hub is not None and data.builtin is not None:
        yield Problem(path, "gives both a hub set and a builtin one")
    if data.builtin is not None and files:
        yield Problem(path, f"a builtin set has its own rows; {', '.join(sorted(files))} cannot be given with it")
    if data.builtin is None and "train" not in files:
        yield Problem((*path, "train"), "is missing: a file, or the hub set's split, to learn from")
    yield from _split_problems(data, files)


def _split_problems(data: Data, files: Collection[str]) -> Iterator[Problem]:
    """Yield what cannot be split off train."""
    path = ("task", "data")
    shares = {
        role: share for role, share in (("select", data.select_share), ("test", data.test_share)) if role not in files
    }
    for role, share in shares.items():
        if not share:
            yield Problem(
                (*path, role), f"is missing: give labelled rows, or split some off train with {role}_share: 0.1"
            )
    if data.group is not None and not shares:
        yield Problem((*path, "group"), "has no effect: select and test have rows of their own")
    total = sum(share for share in shares.values() if share != "auto")
    if total >= 1:
        yield Problem(path, f"select_share and test_share split off {total:.0%} of train: nothing is left")


def _files_of_hub_sets(data: Data) -> Iterator[Problem]:
    """Yield files that are named where splits of a set on the hub are expected."""
    for part in ("train", "select", "test", "corpus", "unlabelled") if data.hub is not None else ():
        entries = getattr(data, part) or ()
        for entry in (entries,) if isinstance(entries, str) else entries:
            if entry.endswith(FILE_ENDINGS) or ("/" in entry and Path(entry).is_file()):
                message = f"{entry} is a file, where a split of the hub set {data.hub} is expected"
                yield Problem(("task", "data", part), message)


CONTRADICTORY_SHARE = 0.01
"""Share of rows with a contradictory label from which a warning is given."""
SCORED, FEWEST = ("select", "test"), 30
"""Roles that models are scored on, and rows of them below which chance decides between models."""
SHOWN = 3
"""Classes that one sentence names."""
FILE_ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".txt", ".gz")
ABSENT = frozenset({"", "-", "?", "na", "n/a", "#n/a", "nan", "nil", "none", "null"})
"""How other programs write a value that is missing."""
IMBALANCED = 20
"""A class this many times as large as another one leaves that hardly any weight in a mean over rows."""


def label_problems(
    kind_name: str,
    metric: str,
    rows: Mapping[Any, int],
    contradictory: Mapping[Any, int],
    per_class: Mapping[Any, Mapping[str, int]],
) -> Iterator[str]:
    """Yield a sentence for each role with contradictory labels, and what is unusual about the classes of train.

    Args:
        kind_name: of the task.
        metric: the primary metric.
        rows: by role, the number of rows.
        contradictory: by role, the rows whose text another one has with another label.
        per_class: by role and class, the number of rows.
    """
    for role, count in contradictory.items():
        if count > CONTRADICTORY_SHARE * rows[role]:
            share = f"{count:,} of {rows[role]:,} {role} rows ({count / rows[role]:.1%})"
            yield f"{share} have the text of another row and another label: no model can be right on all."
    if few := [f"{role} has {pluralize(rows[role], 'row')}" for role in SCORED if 0 < rows.get(role, 0) < FEWEST]:
        yield f"{' and '.join(few)}: too few to tell models apart."
    yield from _differ_in_spelling(per_class.get("train", {}))
    if absent := [label for label, count in per_class.get("train", {}).items() if count and label.lower() in ABSENT]:
        named = " and ".join(f"'{label}' ({per_class['train'][label]:,} rows of train)" for label in absent)
        what = "The class {} may be a missing value" if len(absent) == 1 else "The classes {} may be missing values"
        yield f"{what.format(named)}: remove such rows, or leave their labels empty."
    present = {label: count for label, count in per_class.get("train", {}).items() if count}
    if single := [label for label, count in present.items() if count == 1]:
        named = ", ".join(f"'{label}'" for label in single[:SHOWN])
        more = f" and {len(single) - SHOWN:,} more" if len(single) > SHOWN else ""
        who = "1 class has" if len(single) == 1 else f"{len(single):,} classes have"
        yield f"{who} a single row of train ({named}{more}), too few to learn from."
    several = {label: count for label, count in present.items() if count > 1}
    largest, smallest = (pick(several, key=several.__getitem__, default="") for pick in (max, min))
    if several and present[largest] > IMBALANCED * present[smallest]:
        sizes = f"'{largest}' has {present[largest]:,} rows of train, '{smallest}' {present[smallest]:,}"
        advice = "; ".join(_advice(kind_name, metric))
        yield f"The classes are imbalanced: {sizes}{advice and f'; {advice}'}."


def _differ_in_spelling(classes: Iterable[str]) -> Iterator[str]:
    """Yield a sentence where classes differ only in spaces, capitals, or a number's decimals."""
    groups = defaultdict(list)
    for label in classes:
        groups[spelling_key(label)].append(label)
    alike = [" and ".join(f"'{label}'" for label in group[:SHOWN]) for group in groups.values() if len(group) > 1]
    if alike:
        more = f"; {len(alike) - SHOWN:,} more" if len(alike) > SHOWN else ""
        shown = f"{'; '.join(alike[:SHOWN])}{more}"
        yield f"Some classes differ only in how they are written ({shown}): if they mean the same, write them alike."


def spelling_key(label: str) -> str:
    """Return what spellings of a label have in common: without case, further spaces, and the decimals of 1.0."""
    return re.sub(r"^([+-]?\d+)\.0+$", r"\1", " ".join(label.split()).casefold())


def _advice(kind_name: str, metric: str) -> Iterator[str]:
    kind = KINDS[kind_name]
    by_rows = {kind.metrics[0].name, *(each.name for each in kind.metrics if each.is_accuracy)}
    if metric in by_rows and any(each.name == "macro_f1" for each in kind.metrics):
        yield f"{metric} hardly depends on small classes, task.metric: macro_f1 weighs all alike"
    if kind.loss.weighted:
        yield "class_weights: balanced (in finetune and distill) makes training do so"
