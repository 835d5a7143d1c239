"""rows.html: rows of test that a model got wrong or answers otherwise than its teacher, with texts and answers.

It holds the user's data. It is written into the run's own folder, and nothing publishes it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.measure.quality.score_model import largest_disagreements
from compress.model_folder.model_info import TaskInfo
from compress.report.pages.render import page_environment, page_script, script_hash
from compress.report.report_schema import ROWS_PAGE
from compress.tasks.base import Array, Row, TaskInput
from compress.tasks.kind import Kind

MOST_ROWS = 1000
"""Rows of a model that are shown."""
MOST_CHARACTERS = 2000
"""Characters of a text that are shown."""
MOST_TOGETHER = 5_000_000
"""Characters of all texts of a table: a row of a ranking may have a thousand candidates."""


@dataclass(frozen=True)
class WrongRow:
    """A row that a model got wrong."""

    row: int
    """Its number in test, from 0."""
    number: int | None
    """Its number in the files that test comes from, from 1; None where that is not known."""
    texts: tuple[str, ...]
    label: str
    answer: str
    teacher: str | None
    """The teacher's answer; None for the teacher's own rows."""
    teacher_is_right: bool | None
    """None where answers are neither right nor wrong, but more or less far from the truth."""


@dataclass(frozen=True)
class WrongRows:
    """What the page shows of one model."""

    model: str
    targets: tuple[str, ...]
    tested: int
    """Rows of test."""
    wrong: int
    """Rows that it got wrong; of scores, that differ from the truth at all."""
    shared: int
    """Rows that the teacher got wrong too."""
    teacher_alone: int
    """Rows that the teacher alone got wrong."""
    order: str
    """What the rows are ordered by."""
    rows: tuple[WrongRow, ...]


def wrong_rows(
    kind: Kind,
    task: TaskInfo,
    rows: Sequence[Row],
    gold: Array,
    answers: Array,
    teachers: Array | None,
    *,
    model: str,
    targets: Sequence[str],
    numbers: NDArray[np.int64] | None = None,
    most: int = MOST_ROWS,
) -> WrongRows | None:
    """Return the rows that a model got wrong, its most confident answers first; None where none can be wrong.

    Where a row has many decisions, the wrong one with the highest probability counts. Kinds without probabilities keep
    the order of test, and kinds that predict numbers begin with the largest error.

    Args:
        kind: the task's.
        task: the task.
        rows: of test.
        gold: their true labels.
        answers: the model's predictions.
        teachers: the teacher's; None for the teacher itself.
        model: the key of the row in the report.
        targets: where it gives these answers.
        numbers: of the rows in the files that test comes from, from 0.
        most: how many rows are returned.
    """
    right = kind.correct(answers, gold)
    errors = kind.errors(answers, gold, task) if right is None else None
    if right is None and errors is None:
        return None
    others = None if teachers is None or right is None else kind.correct(teachers, gold)
    weight: NDArray[np.float64] | None = errors
    if errors is not None:
        wrong, order = errors > 0, "the largest error first"
    else:
        assert right is not None
        wrong, weight = ~right, _certainty(kind, answers, gold)
        order = "in the order of test" if weight is None else "the most confident first"
    chosen = np.flatnonzero(wrong)
    if weight is not None:
        chosen = chosen[np.argsort(-weight[chosen], kind="stable")]
    shown = chosen[:most]
    shown = shown[: how_many_fit(kind, (rows[index] for index in shown.tolist()))]
    return WrongRows(
        model=model,
        targets=tuple(targets),
        tested=len(gold),
        wrong=len(chosen),
        shared=0 if others is None else int((wrong & ~others).sum()),
        teacher_alone=0 if others is None else int((~wrong & ~others).sum()),
        order=order,
        rows=tuple(_described(kind, task, rows, shown, gold, (answers, teachers), others, numbers)),
    )


def _described(
    kind: Kind,
    task: TaskInfo,
    rows: Sequence[Row],
    shown: NDArray[np.int64],
    gold: Array,
    answers: tuple[Array, Array | None],
    teacher_is_right: NDArray[np.bool_] | None,
    numbers: NDArray[np.int64] | None,
) -> Iterator[WrongRow]:
    """Yield these rows of test with their labels, and the answers of the model and of the teacher."""
    own, (ours, teachers) = [rows[index] for index in shown.tolist()], answers
    cells = zip(
        shown.tolist(),
        [None] * len(own) if numbers is None else (numbers[shown] + 1).tolist(),
        own,
        kind.describe_gold_in_full(gold[shown], own, task),
        kind.describe_in_full(ours[shown], own, task),
        [None] * len(own) if teachers is None else kind.describe_in_full(teachers[shown], own, task),
        [None] * len(own) if teacher_is_right is None else teacher_is_right[shown].tolist(),
        strict=True,
    )
    for index, number, row, label, answer, teacher, right in cells:
        yield WrongRow(index, number, shown_texts(kind.to_input(row)), label, answer, teacher, right)


@dataclass(frozen=True)
class DisagreementRow:
    """A row that a model and the teacher answer differently."""

    row: int
    texts: tuple[str, ...]
    label: str
    answer: str
    teacher: str
    distance: float
    right: str
    """Who is: `model alone`, `teacher alone`, `both`, `neither`; empty where answers are neither right nor wrong."""


@dataclass(frozen=True)
class Disagreements:
    """The rows on which a model and the teacher differ most."""

    model: str
    targets: tuple[str, ...]
    rows: tuple[DisagreementRow, ...]


def disagreements(
    kind: Kind,
    task: TaskInfo,
    rows: Sequence[Row],
    gold: Array,
    answers: Array,
    teachers: Array,
    *,
    model: str,
    targets: Sequence[str],
) -> Disagreements:
    """Return the rows on which a model and the teacher differ most; the arguments are those of `wrong_rows`."""
    found = largest_disagreements(kind, task, answers, teachers, gold, most=MOST_ROWS)
    found = found[: how_many_fit(kind, (rows[one.row] for one in found))]
    ours, theirs = kind.correct(answers, gold), kind.correct(teachers, gold)

    def who(row: int) -> str:
        if ours is None or theirs is None:
            return ""
        names = {(True, True): "both", (True, False): "model alone", (False, True): "teacher alone"}
        return names.get((bool(ours[row]), bool(theirs[row])), "neither")

    listed = (
        DisagreementRow(
            row=one.row,
            texts=shown_texts(kind.to_input(rows[one.row])),
            label=one.gold,
            answer=one.ours,
            teacher=one.teachers,
            distance=one.distance,
            right=who(one.row),
        )
        for one in found
    )
    return Disagreements(model, tuple(targets), tuple(listed))


def write_rows_page(
    folder: Path, name: str, models: Sequence[WrongRows], differing: Sequence[Disagreements] = ()
) -> None:
    """Write rows.html into ``folder``; ``name`` is the run's."""
    page, script = page_environment(escape=True).get_template("rows.html.j2"), page_script("table_filter.js")
    settings = {"name": name, "models": models, "most": MOST_ROWS, "most_characters": MOST_CHARACTERS}
    settings |= {"most_together": MOST_TOGETHER, "differing": [each for each in differing if each.rows]}
    content = page.render(**settings, script=script, script_hash=script_hash(script))
    (folder / ROWS_PAGE).write_text(content, encoding="utf-8")


def _certainty(kind: Kind, answers: Array, gold: Array) -> NDArray[np.float64] | None:
    """Return the highest probability that was given to a wrong decision of each row; None without probabilities."""
    confidence = kind.confidence(answers, gold)
    if confidence is None:
        return None
    certainty, wrong = np.zeros(len(gold)), ~confidence.right
    np.maximum.at(certainty, confidence.row[wrong], confidence.stated[wrong])
    return certainty


def how_many_fit(kind: Kind, rows: Iterable[Row]) -> int:
    """Return how many of these rows are shown: until their texts have `MOST_TOGETHER` characters, at least one."""
    count, total = 0, 0
    for row in rows:
        count, total = count + 1, total + sum(map(len, shown_texts(kind.to_input(row))))
        if total >= MOST_TOGETHER:
            break
    return count


def shown_texts(given: TaskInput) -> tuple[str, ...]:
    """Return the texts of a row, each cut to what is shown."""
    texts = (given,) if isinstance(given, str) else given
    return tuple(f"{text[:MOST_CHARACTERS]}…" if len(text) > MOST_CHARACTERS else text for text in texts)
