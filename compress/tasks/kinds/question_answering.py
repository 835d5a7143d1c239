"""Answers to questions as passages of a text, or that the text holds none: SQuAD's kind of task.

Long texts are read in overlapping windows, each with the whole question; the answer is the best passage of all windows.
Where questions may have no answer, none is given if its score beats that of the best passage by more than a threshold,
which is tuned on rows that training did not see (Devlin and others, 2019, section 4.3).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, ModelError, Problem
from compress.model_info import TaskInfo
from compress.recipe.schema import Task
from compress.tasks.base import Arrays, Confidence, Encode, Encoding, Example, Kind, Metric, Row, TaskInput
from compress.tasks.decoding.answer_spans import SPAN, best_spans, merged, token_span
from compress.tasks.decoding.no_answer_threshold import best_threshold
from compress.tasks.kinds.candidate_kind import LEAVE_OUT
from compress.tasks.kinds.text_kind import collate_text, pad, shortened, texts_of
from compress.tasks.metrics.squad_metrics import f1, match
from compress.tasks.parsing.columns import text
from compress.tasks.parsing.squad_answers import marked_answers

MOST_QUESTION = 64
"""Pieces kept of a question; it never takes more than half of a window."""
MOST_KEPT = 500
"""Characters kept of an answer and of each accepted one, and so compared: arrays are as wide as the longest, and a
piece of a word that the tokenizer does not know may be as long as the text."""
NOTHING = np.float32(-1e30)
"""The score of a passage where a text has no pieces at all: below every other."""
PLACES = ("context", "first", "last")


class QuestionAnswering(Kind):
    """Answers are an array of ``fields_of``: the best passage of each row, and whether it is given as the answer."""

    name = "question_answering"
    head = "question-answering"
    problem = "question_answering"
    fields = ("question", "context", "answers", "start")
    label_fields = ("answers", "start")
    perturbable = ("question",)
    columns = (2, 2)
    label_columns = 2
    settings = ("overlap", "max_windows", "max_answer")
    metrics = (
        Metric("f1", floor=0.0, needs_varied_labels=False),
        Metric("exact_match", floor=0.0, is_accuracy=True, needs_varied_labels=False),
        Metric("answerable", needs_varied_labels=False),
    )

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """Answers that are longer than what is read of a text at once."""
        if task.max_answer >= task.max_length:
            told = f"an answer of {task.max_answer} pieces does not fit into max_length: {task.max_length}"
            yield Problem(("task", "max_answer"), told)

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Question, context, all accepted answers (none where there is none), and where the first one begins."""
        question, context = self.parse_input(raw, task, where)
        answers, start = marked_answers(raw, context, task, where)
        return {"question": question, "context": context, "answers": answers, "start": start}

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> tuple[str, ...]:
        """The question and the text, neither of them empty."""
        texts = tuple(text(raw, name, task, where) for name in task.text)
        for name, found in zip(task.text, texts, strict=True):
            if not found.strip():
                raise DataError(f"{where}: column '{name}' is empty.", hint=LEAVE_OUT)
        return texts

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """No answer."""
        return {"answers": [], "start": -1}

    def to_input(self, row: Row) -> TaskInput:
        """The question and the text."""
        return str(row["question"]), str(row["context"])

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """The question and the text by their fields."""
        question, context = texts_of(given, task)
        return {"question": question, "context": context}

    def output_count(self, task: TaskInfo) -> int:
        """Two a piece: how well an answer begins with it, and how well it ends."""
        return 2

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """One example a window; an answer is told to those that hold all of it, and none (0, 0) to the others."""
        question = shortened(row["question"], min(MOST_QUESTION, task.max_length // 2), encode)
        windows = encode.windows(question, row["context"], task.max_length, task.overlap, task.max_windows)
        examples = [example_of(window) for window in windows]
        if "answers" in row:
            for number, (example, window) in enumerate(zip(examples, windows, strict=True)):
                is_last = number == len(windows) - 1 and not window.truncated
                example["start"], example["end"] = places(row, window, number == 0, is_last)
        return examples

    def collate(self, examples: Sequence[Example], pad_id: int) -> Arrays:
        """A padded batch, with which pieces are the context's (1) and their characters (-1 elsewhere)."""
        batch = collate_text(examples, pad_id)
        for name in PLACES:
            batch[name] = pad([example[name] for example in examples], 0 if name == "context" else -1)
        for name in ("start", "end"):
            if name in examples[0]:
                batch[name] = np.asarray([example[name] for example in examples], dtype=np.int64)
        return batch

    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[NDArray[Any]]:
        """Of each window the score of no answer and the best passages, by their characters."""
        start, end = (checked(outputs, name, batch) for name in ("start_logits", "end_logits"))
        found = best_spans(start, end, batch["context"], task.max_answer)
        nothing = start[:, 0] + end[:, 0]
        kept = []
        for line, spans in enumerate(found):
            first, last = batch["first"][line], batch["last"][line]
            places = [(first[begin], last[stop], score) for begin, stop, score in spans]
            kept.append(np.array([(-1, -1, nothing[line]), *places], dtype=SPAN))
        return kept

    def predictions(
        self, decided: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], task: TaskInfo
    ) -> NDArray[Any]:
        """The best passage of each row over its windows, and whether it is given (``fields_of``)."""
        passages: list[tuple[Any, ...]] = []
        ends = np.cumsum(counts)
        for row, count, end in zip(rows, counts, ends, strict=True):
            spans, nothing = merged(decided[end - count : end])
            total = np.logaddexp.reduce(spans["score"].astype(np.float64), initial=float(NOTHING))
            first, last, score = spans[0] if len(spans) else (-1, -1, NOTHING)
            answer = row["context"][first : min(last, first + MOST_KEPT)] if len(spans) else ""
            passages.append((answer, first, last, score, nothing, total, False, 0.0))
        width = max((len(passage[0]) for passage in passages), default=0)
        return self.apply_threshold(np.array(passages, dtype=fields_of(width)), task)

    def has_threshold(self, rows: Sequence[Row]) -> bool:
        """Whether some of these questions have no answer."""
        return any(not row["answers"] for row in rows)

    def tune_threshold(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> TaskInfo:
        """The task with the threshold that is best for its metric on these rows; none where all have an answer."""
        if has_answer(gold).all():
            return task.model_copy(update={"threshold": None})
        kept, dropped = (scored(all_given(answers, given), gold)[task.metric] for given in (True, False))
        return task.model_copy(update={"threshold": best_threshold(surplus(answers), kept, dropped)})

    def apply_threshold(self, answers: NDArray[Any], task: TaskInfo) -> NDArray[Any]:
        """The same passages, given or not as the task's threshold says.

        The probability is the softmax over the best passages, and where there is a threshold also over no answer with
        its score less the threshold: so what is decided is always what is most probable.
        """
        decided = answers.copy()
        has_passage, total = answers["start"] >= 0, answers["total"]
        if task.threshold is None:
            decided["answered"] = has_passage
            decided["probability"] = np.where(has_passage, np.exp(np.minimum(answers["score"] - total, 0.0)), 1.0)
            return decided
        nothing = answers["null"].astype(np.float64) - task.threshold
        decided["answered"] = has_passage & (surplus(answers) <= task.threshold)
        chosen = np.where(decided["answered"], answers["score"], nothing)
        decided["probability"] = np.exp(np.minimum(chosen - np.logaddexp(total, nothing), 0.0))
        return decided

    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """The accepted answers of each row as a JSON list in UTF-8, empty for none, and the first one's place."""
        told = [accepted_of(row) for row in rows]
        ends = [row["start"] + len(row["answers"][0]) if row["answers"] else -1 for row in rows]
        form = [("answers", f"S{max(map(len, told), default=2)}"), ("start", np.int32), ("end", np.int32)]
        return np.array(list(zip(told, (row["start"] for row in rows), ends, strict=True)), dtype=form)

    def score(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """F1, exact match, and how often it was rightly told whether there is an answer."""
        return {name: float(values.mean()) for name, values in scored(answers, gold).items()}

    def correct(self, answers: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether the answer is exactly one of the accepted ones."""
        right: NDArray[np.bool_] = scored(answers, gold)["exact_match"] > 0
        return right

    def weighted_scores(
        self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo, times: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Means over rows, each as often as it was drawn."""
        return {name: times @ values / times.sum(axis=1) for name, values in scored(answers, gold).items()}

    def same_decision(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Where both give the same answer by SQuAD's comparison, or none."""
        pairs = zip(given_texts(answers), given_texts(others), strict=True)
        return np.array([match(ours, [theirs])[0] for ours, theirs in pairs], dtype=np.bool_)

    def distance(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """One minus the F1 of the two answers."""
        pairs = zip(given_texts(answers), given_texts(others), strict=True)
        return np.array([1.0 - f1(ours, theirs) for ours, theirs in pairs], dtype=np.float64)

    def confidence(self, answers: NDArray[Any], gold: NDArray[Any]) -> Confidence | None:
        """One decision a row: the answer, right where it matches exactly."""
        right = scored(answers, gold)["exact_match"] > 0
        return Confidence(np.arange(len(gold)), answers["probability"].astype(np.float64), right)

    def to_json(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """The answer with its characters in the text, all null where none is given, and its probability."""
        return [
            {
                "answer": str(line["text"]) if line["answered"] else None,
                "start": int(line["start"]) if line["answered"] else None,
                "end": int(line["end"]) if line["answered"] else None,
                "probability": float(line["probability"]),
            }
            for line in answers
        ]

    def describe(self, answers: NDArray[Any], task: TaskInfo) -> list[str]:
        """`characters 17-29 (83 %)`, `no answer (61 %)`."""
        places = [_place(line["start"], line["end"], line["answered"]) for line in answers]
        return [f"{place} ({100 * line['probability']:.0f} %)" for place, line in zip(places, answers, strict=True)]

    def describe_gold(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """`characters 17-29`."""
        return [_place(line["start"], line["end"], line["start"] >= 0) for line in gold]


def fields_of(width: int) -> list[tuple[str, Any]]:
    """What an array of answers holds, for texts of up to ``width`` characters.

    The best passage with its characters and score, whatever is decided, so that it can be decided anew; the score of no
    answer; the logarithm of the sum of the best passages' exponentials; whether the passage is given as the answer, and
    the probability of that decision.
    """
    numbers = [("score", np.float32), ("null", np.float32), ("total", np.float64)]
    return [
        ("text", f"U{max(1, width)}"),
        ("start", np.int32),
        ("end", np.int32),
        *numbers,
        ("answered", np.bool_),
        ("probability", np.float64),
    ]


def example_of(window: Encoding) -> Example:
    """A window's pieces, and of each whether it is the context's and which characters of it."""
    spans = window.spans or ()
    return {
        "input_ids": window.input_ids,
        "token_type_ids": window.token_type_ids,
        "context": [int(last > first >= 0) for first, last in spans],
        "first": [first for first, _ in spans],
        "last": [last for _, last in spans],
    }


def places(row: Row, window: Encoding, is_first: bool, is_last: bool) -> tuple[int, int]:
    """The pieces with which the row's first answer begins and ends in a window; (0, 0) for none."""
    if not row["answers"]:
        return 0, 0
    characters = row["start"], row["start"] + len(row["answers"][0])
    return token_span(window.spans or (), characters, is_first, is_last)


def checked(outputs: Arrays, name: str, batch: Arrays) -> NDArray[np.float32]:
    """A score for each piece; one that is not a number would otherwise win unseen."""
    scores: NDArray[np.float32] = np.asarray(outputs[name], dtype=np.float32)
    if scores.shape != batch["input_ids"].shape:
        raise ModelError(f"the model's {name} are {scores.shape} for pieces {batch['input_ids'].shape}.")
    if not np.isfinite(scores).all():
        broken = int((~np.isfinite(scores)).any(axis=-1).sum())
        raise ModelError(f"the model's output is not a number for {broken} of {len(scores)} windows.")
    return scores


def accepted_of(row: Row) -> bytes:
    """A row's accepted answers, each once and as much of it as is compared, as a JSON list."""
    texts = dict.fromkeys(text[:MOST_KEPT] for text in row["answers"])
    return json.dumps(list(texts), ensure_ascii=False).encode()


def has_answer(gold: NDArray[Any]) -> NDArray[np.bool_]:
    """Which questions have an answer."""
    some: NDArray[np.bool_] = gold["answers"] != b"[]"
    return some


def surplus(answers: NDArray[Any]) -> NDArray[np.float64]:
    """By how much no answer scores higher than the best passage."""
    difference: NDArray[np.float64] = answers["null"].astype(np.float64) - answers["score"]
    return difference


def all_given(answers: NDArray[Any], given: bool) -> NDArray[Any]:
    """The same passages, each given as the answer or none of them."""
    decided = answers.copy()
    decided["answered"] = given & (answers["start"] >= 0)
    return decided


def given_texts(answers: NDArray[Any]) -> list[str]:
    """The text of each answer, empty where none is given."""
    texts: list[str] = np.where(answers["answered"], answers["text"], "").tolist()
    return texts


def scored(answers: NDArray[Any], gold: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """Every metric of each row."""
    accepted = [json.loads(texts) for texts in gold["answers"]]
    found = [match(text, texts) for text, texts in zip(given_texts(answers), accepted, strict=True)]
    exact, shared = np.array(found, dtype=np.float64).reshape(-1, 2).T
    told = answers["answered"] == has_answer(gold)
    return {"f1": shared, "exact_match": exact, "answerable": told.astype(np.float64)}


def _place(start: Any, end: Any, answered: Any) -> str:
    return f"characters {start}-{end}" if answered else "no answer"
