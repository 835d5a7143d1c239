"""The answers to a part of a file: what its rows hold, what is wrong with them, and what the model says."""

import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import parent_process
from typing import Any, NamedTuple

from compress.bulk.bulk_job import BulkJob, PartInfo
from compress.bulk.bulk_predictor import ERROR, Answer, BulkPredictor
from compress.bulk.read_table import LINE, Part, cells_of, parsed_objects
from compress.bulk.write_table import write_part
from compress.data.loading.text_decoding import INVALID
from compress.errors import DataError, UsageError, nearest

KEEP_HINT = "--bad-rows keep gives such rows an empty answer, and counts them"


class AnsweredPart(NamedTuple):
    """A part with its answers."""

    answers: Sequence[Answer]
    objects: Sequence[Mapping[str, Any]] | None
    """The rows of a file of objects."""
    cells: Sequence[Sequence[Any]]
    """What rows hold in the columns of text."""
    faults: Mapping[int, str]
    """Why a row, by its index, could not be read."""
    empty: int
    """Rows without text."""


def answer_part(
    part: Part,
    predictor: BulkPredictor,
    shown: str,
    *,
    keep_bad: bool,
    lines: bool = False,
    added: Sequence[str] = (),
) -> AnsweredPart:
    """Return the answers to a part of the file that messages call ``shown``.

    Args:
        part: rows of the file.
        predictor: answers them.
        shown: the file.
        keep_bad: rows that cannot be read have an empty answer, else the first of them is an error.
        lines: a row is a line of text, with tabs between texts that are read together.
        added: columns that go beside those of a row, which must not have them.
    """
    objects, faults = (None, part.faults) if part.columns else parsed_objects(part)
    where = [f"{shown}, {part.where(index)}" for index in range(len(part))]
    for row, values in enumerate(objects or ()):
        if used := [name for name in added if name in values]:
            raise taken(f"{where[row]}: the object", used[0])
        if values and (missing := [name for name in predictor.columns if name not in values]):
            faults.setdefault(row, f"it has no '{missing[0]}'{nearest(missing[0], values)}")
    cells: list[Sequence[Any]] = list(cells_of(part, (LINE,) if lines else predictor.columns, objects))
    if lines and (len(predictor.columns) > 1 or predictor.model.kind.reads_one_text):
        cells = [line.split("\t") for (line,) in cells]
    found = predictor.answer([() if index in faults else row for index, row in enumerate(cells)], where)
    unread, faults = set(faults) - set(found.faults), {**faults, **found.faults}
    if faults and not keep_bad:
        raise bad_row(where[min(faults)], faults[min(faults)])
    return AnsweredPart(found.answers, objects, cells, faults, found.empty - len(unread))


def bad_row(where: str, fault: str) -> DataError:
    """Return the error for a row that cannot be read."""
    hint = f"--encoding names another one, such as latin-1; {KEEP_HINT}" if fault.startswith(INVALID) else KEEP_HINT
    return DataError(f"{where}: {fault}", hint=hint)


def taken(what: str, name: str) -> UsageError:
    """Return the error for a name of an answer column that is in use."""
    return UsageError(
        f"{what} has a column '{name}' already.", hint="--prefix model_ goes before the names of the answer columns"
    )


def _is_orphan() -> bool:
    """Whether this is a worker whose parent is gone."""
    parent = parent_process()
    return parent is not None and not parent.is_alive()


def open_worker(job: BulkJob) -> Callable[[Part], tuple[int, PartInfo]]:
    """Open the model of a job in a process; return what writes a part with its answers, and what is said of it."""
    predictor = BulkPredictor(
        job.model,
        text=job.text,
        prefix=job.prefix,
        probabilities=job.probabilities,
        batch=job.batch,
        device=job.device,
        threads=job.threads,
    )
    return lambda part: (part.index, _write_answers(part, predictor, job))


def _write_answers(part: Part, predictor: BulkPredictor, job: BulkJob) -> PartInfo:
    shown, keep_bad = job.file.shown, job.bad_rows == "keep"
    done = answer_part(part, predictor, shown, keep_bad=keep_bad, lines=job.is_lines, added=job.added_columns)
    answers = [{field: answer.get(field) for field in predictor.fields} for answer in done.answers]
    if keep_bad:
        answers = [{**answer, ERROR: done.faults.get(index)} for index, answer in enumerate(answers)]
    if _is_orphan():  # another job may have begun in the same folder
        sys.exit(1)
    write_part(job.part_path(part.index), job.part_format, part, done.objects, job.added_columns, answers)
    columns = part.columns
    if done.objects is not None:
        columns = tuple(dict.fromkeys(name for row in done.objects for name in row))
    return PartInfo(rows=len(part), empty=done.empty, bad=len(done.faults), columns=columns)
