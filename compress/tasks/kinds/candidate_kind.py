"""What kinds share whose rows are a question with a list of texts, each scored on its own by one shared head.

Each text gives one example, the question and the text as a pair, and the model gives it one number. Rows may have
lists of different lengths: predictions are arrays as wide as the longest list, padded on the right.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import BatchArray
from compress.errors import DataError, pluralize
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Array, Arrays, Encode, Example, Row, Script, TaskInput
from compress.tasks.kind import Kind
from compress.tasks.kinds.text_kind import check_texts, model_output, same_argmax
from compress.tasks.parsing.columns import SKIP_HINT, whole_text, wrong_value

MAX_TEXTS = 1000
"""Texts of the longest list: predictions of all rows are as wide as that, and in training a row goes into one batch."""


class CandidateKind(Kind):
    """A kind whose rows hold a question in `text` and a list of texts in ``list_field``."""

    head = "sequence-classification"
    probed_as = "candidates"
    perturbable: tuple[str, ...] = ("text",)
    text_columns: tuple[int, int | None] = (2, 2)
    is_variadic = True
    reads_lists = True
    batch_arrays = (BatchArray("labels", "example", np.float32, field="label"),)
    list_field: str
    """The field of a canonical row that holds the list."""
    min_texts: int
    """The shortest list that makes sense."""

    def relevance(self, row: Row) -> Sequence[float]:
        """Return how right each text of the list is (0: wrong)."""
        raise NotImplementedError

    def targets(self, row: Row) -> Iterable[Hashable]:
        """Return the relevance of the texts: right ones are to be distinguished from wrong ones."""
        return self.relevance(row)

    def to_input(self, row: Row) -> TaskInput:
        """Return the question and the texts of its list."""
        return (str(row["text"]), *map(str, row[self.list_field]))

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """Return the first text as the question, the others as its list."""
        expected = f"a question and {self.min_texts} or more {self.list_field}"
        hint = "the question comes first; in a file, separate them with tabs"
        texts = check_texts(given, task, self.min_texts + 1, MAX_TEXTS + 1, expected, hint)
        return {"text": texts[0], self.list_field: list(texts[1:])}

    def output_count(self, task: TaskInfo) -> int:
        """Return one: the score of a text."""
        return 1

    def keep_row_together(self, task: TaskInfo) -> bool:
        """Return true: scores are compared within a list only."""
        return True

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """Return one example per text of the list."""
        texts = row[self.list_field]
        labels: Sequence[float | None] = self.relevance(row) if "label" in row else [None] * len(texts)
        pairs = zip(texts, labels, strict=True)
        return [encode(row["text"], text, task.max_length).example(label=label) for text, label in pairs]

    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[Array]:
        """Return the score of each example."""
        return list(model_output(outputs, "logits", (None, 1), "rows"))

    def same_decision(self, predictions: Array, others: Array) -> NDArray[np.bool_]:
        """Return where the same text has the highest score."""
        return same_argmax(predictions, others)


def list_script(prints: str, last_line: str, sample: str) -> Script:
    """Return a script that collects the `scores` of a list and ends with ``last_line``."""
    return Script(
        prints,
        loop="for text in sys.argv[2:]:",
        encode="sys.argv[1], text",
        before=("scores = []",),
        each=("scores.append(float(outputs[0][0][0]))",),
        after=(last_line,),
        sample=sample,
    )


def split_rows_scores(decoded: Sequence[Array], counts: Sequence[int]) -> list[Array]:
    """Return the scores of each row: ``counts`` of ``decoded``, one number each."""
    return np.split(np.concatenate(decoded), np.cumsum(counts)[:-1])


def check_list(texts: Sequence[Any], item: str, min_texts: int, where: str) -> list[str]:
    """Return a list of non-empty texts, or raise a DataError that names the invalid ``item``."""
    if not min_texts <= len(texts) <= MAX_TEXTS:
        count = pluralize(len(texts), item)
        raise DataError(f"{where}: the row has {count}; {min_texts} to {MAX_TEXTS:,} are expected.", hint=SKIP_HINT)
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str) or not text.strip():
            raise wrong_value(text, f"{item} {number} of {len(texts)}", "text", where, SKIP_HINT)
        whole_text(text, f"{item} {number} of {len(texts)}", where)
    return list(texts)
