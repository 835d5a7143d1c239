"""Refuses roles that cannot be used: empty ones, train without different labels, classes that train does not have."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from compress.console import Console
from compress.data.loading.data_digest import ROLES, describe_source
from compress.data.loading.row_sources import Source, valid_rows
from compress.data.splits.row_statistics import RowStatistics
from compress.data.splits.row_store import StoredRows
from compress.errors import DataError, pluralize
from compress.recipe.field_types import Role
from compress.recipe.task_schema import Task
from compress.tasks import KINDS, primary_metric
from compress.tasks.parsing.columns import class_name, is_missing, label_columns
from compress.tasks.parsing.labels import UnknownClass
from compress.tasks.validate_task import spelling_key

FEW = 10
"""A column of fewer values than this is not taken for one that identifies rows."""
SAMPLED = 10_000
"""Rows whose columns are searched for classes."""
MAX_NAMED = 10
"""Classes that one message names."""
UNSEEN_HINT = (
    "a model cannot predict a class that it never saw: add rows of it to train, correct its name, or leave its rows out"
    " with task.data.bad_rows: skip (and without it in task.labels)"
)


def check_roles(
    statistics: RowStatistics, shares: Mapping[Role, float], task: Task, train: Source, folder: Path, console: Console
) -> None:
    """Refuse empty roles, train without two different labels, and classes that train does not have.

    Args:
        statistics: of the rows of all roles.
        shares: of train, that were to become other roles.
        task: the recipe's.
        train: the rows from which ``shares`` were taken.
        folder: holds the rows of all roles.
        console: shows warnings.
    """
    count = sum(statistics.count(role) for role in ("train", *shares))
    if any(statistics.count(role) < share * count / 2 for role, share in shares.items()):
        refuse_identifiers(statistics, count, task, train)
    for role in ROLES:
        if not statistics.count(role):
            why = statistics.describe_skipped("train" if role in shares else role) or (
                "there are too few to split, and the last row of a class stays in train."
            )
            hint = f"name a file of labelled rows in task.data.{role}" if role in shares else None
            raise DataError(f"{describe_source(task.data, role)} has no rows left: {why}", hint=hint)
    if not statistics.is_varied(StoredRows(folder, "train")):
        taken = task.data.limit and pluralize(task.data.limit, "row")
        hint = f"task.data.limit, or --smoke, takes {taken} of it: others may have other labels" if taken else None
        source = describe_source(task.data, "train")
        raise DataError(f"{source}: all labels are the same; at least two are needed.", hint=hint)
    _check_scored_roles(statistics, task, folder, console)
    if shared := statistics.shared("test", "select"):
        console.warn(f"{shared:,} of {statistics.count('test'):,} test rows have a text that is also in select.")
    in_train = statistics.per_class("train")
    for role in ROLES[1:]:
        rows = statistics.per_class(role).items()
        unseen = Counter({label: count for label, count in rows if count and not in_train[label]})
        message = f"{describe_source(task.data, role)} has rows of {_list_classes(unseen)}, and train has none"
        # A limit can take a rare class out of train; a file that never had it is another matter.
        is_partial = task.data.limit is not None or task.data.labelled is not None
        if unseen and not is_partial and role not in shares and task.soft_labels is None:
            raise DataError(f"{message}.", hint=UNSEEN_HINT)
        if unseen:
            console.warn(f"{message}.")


def _check_scored_roles(statistics: RowStatistics, task: Task, folder: Path, console: Console) -> None:
    """Refuse select and test where all labels are the same and the metric then cannot distinguish models.

    Where the recipe takes some rows alone, as a first try does, this is a warning.
    """
    metric, kind = primary_metric(task), KINDS[task.kind]
    for role in ROLES[1:] if metric.needs_varied_labels else ():
        rows = StoredRows(folder, role)
        if statistics.is_varied(rows) or kind.has_varied_labels(kind.gold(rows)):
            continue
        message = (
            f"{describe_source(task.data, role)}: its labels are all the same: {metric.name} cannot distinguish models."
        )
        if task.data.limit is None and task.data.labelled is None:
            others = " or ".join(each.name for each in kind.metrics if not each.needs_varied_labels)
            hint = "give rows with other labels too"
            raise DataError(message, hint=f"{hint}, or set task.metric: {others}" if others else hint)
        console.warn(message)


def refuse_identifiers(statistics: RowStatistics, rows: int, task: Task, train: Source) -> None:
    """Raise where more than half of ``rows`` of train have a class of their own: the column names rows, not classes."""
    classes = sum(1 for count in statistics.per_class("train").values() if count)
    if classes < FEW or classes <= rows / 2:
        return
    columns, candidates = " and ".join(label_columns(task)), _columns_of_classes(train, task)
    named = f"; columns with few values are {', '.join(candidates)}" if candidates else ""
    raise DataError(
        f"{describe_source(task.data, 'train')}: '{columns}' has {classes:,} values in {pluralize(rows, 'row')}: it"
        " identifies rows and is no class, and a class needs several rows.",
        hint=f"task.label names the column of classes (--label of compress init){named}",
    )


def _columns_of_classes(train: Source, task: Task) -> list[str]:
    """Return `topic (6)`: the other columns that have several values, each of them in several rows."""
    used, values, rows = {*task.text, *label_columns(task)}, defaultdict[str, set[str]](set), 0
    with suppress(DataError):  # of a column that nothing else reads
        for raw in islice(train(), SAMPLED):
            rows += 1
            for column, value in raw.values.items():
                if column not in used and not isinstance(value, (list, tuple, dict)) and not is_missing(value):
                    values[column].add(class_name(value))
    few = sorted((len(found), column) for column, found in values.items() if 1 < len(found) <= rows / 5)
    return [f"'{column}' ({count:,})" for count, column in few[:MAX_NAMED]]


def unseen_classes(first: UnknownClass, source: Source, role: Role, task: Task, labels: tuple[str, ...]) -> DataError:
    """Return an error that names every class of a source that train does not have, with its rows."""
    unseen: Counter[str] = Counter()

    def count(fault: DataError) -> None:
        if isinstance(fault, UnknownClass):
            unseen[fault.label] += 1

    skipping = task.model_copy(update={"data": task.data.model_copy(update={"bad_rows": "skip"})})
    for _ in valid_rows(source, skipping, labels, role, count):
        pass
    rows = f"{describe_source(task.data, role)} has {pluralize(unseen.total(), 'such row')}"
    known = {spelling_key(label): label for label in labels}
    alike = [f"'{known[each]}' for '{label}'" for label in unseen if (each := spelling_key(label)) in known]
    spelled = f"train has {', '.join(alike[:MAX_NAMED])}: write them alike" if alike else ""
    hint = "; ".join(filter(None, [spelled, UNSEEN_HINT if len(alike) < len(unseen) else ""]))
    return DataError(f"{first.message} {rows}, of {_list_classes(unseen)}.", hint=hint)


def _list_classes(rows: Counter[str]) -> str:
    """Return `'sport' (12), 'art' (3)`, the largest classes first."""
    named = [f"'{label}' ({count:,})" for label, count in rows.most_common(MAX_NAMED)]
    return ", ".join([*named, *([f"and {len(rows) - MAX_NAMED:,} more"] if len(rows) > MAX_NAMED else [])])
