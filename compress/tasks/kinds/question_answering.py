"""Answers to questions as spans of a text, or that the text holds none: SQuAD's kind of task.

Long texts are read in overlapping windows, each with the full question; the answer is the best span of all windows.
Where questions may have no answer, none is given if its score exceeds that of the best span by more than a threshold,
which is tuned on rows that training did not see (Devlin and others, 2019, section 4.3).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import BatchArray
from compress.errors import DataError, Problem
from compress.losses import OutputForm, TaskLoss
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import (
    Array,
    Arrays,
    Baseline,
    Confidence,
    Encode,
    Example,
    Metric,
    Row,
    Rows,
    Script,
    TaskInput,
)
from compress.tasks.decoding import SPAN, best_spans, best_threshold, merge_windows, token_span
from compress.tasks.kind import Kind
from compress.tasks.kinds.text_kind import column_texts, model_output, truncate_text
from compress.tasks.metrics import match_answers, word_f1
from compress.tasks.parsing.columns import SKIP_HINT, text_value
from compress.tasks.parsing.squad_answers import IMPOSSIBLE, OFFSET, parse_answers

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task

MAX_QUESTION = 64
"""Tokens of a question that are read; it never takes more than half of a window."""
MAX_ANSWER_CHARS = 500
"""Characters of an answer and of each accepted one that are stored and compared: arrays are as wide as the longest, and
a token of a word that the tokenizer does not know may be as long as the text."""
NO_ANSWER = {"answer": None, "start": None, "end": None}
NO_SPAN = np.float32(-1e30)
"""The score of a span where a text has no tokens at all: below every other."""


class QuestionAnswering(Kind):
    """Predictions are an array of ``prediction_fields``: the best span of each row, and whether it is the answer."""

    name = "question_answering"
    answer_fields = ("answer", "start", "end", "probability")
    needs_every_text = True
    head = "question-answering"
    probed_as = "answer"
    problem = "question_answering"
    needs_attention = "an answer is found by comparing each word of a document with the question"
    loss = TaskLoss("compress.losses.task.span_ce:span_ce")
    outputs = OutputForm("compress.losses.tensor_ops.logit_views:span_views", "softmax")
    hub_pipeline = "question-answering"
    web_difference = ", with an answer of whole words and without `start` and `end`"
    fields = ("question", "context", "answers", "start")
    label_fields = ("answers", "start")
    perturbable = ("question",)
    grouped_by = "context"
    defaults: Mapping[str, Any] = {"text": ["question", "context"], "label": "answers", "max_length": 384}
    text_columns = (2, 2)
    max_label_columns = 2
    unnamed_columns = (IMPOSSIBLE, OFFSET)
    settings = ("overlap", "max_windows", "max_answer")
    batch_arrays = (
        BatchArray("context", "token", np.int64),
        BatchArray("first", "token", np.int64, fill=-1),
        BatchArray("last", "token", np.int64, fill=-1),
        BatchArray("start", "example", np.int64),
        BatchArray("end", "example", np.int64),
    )
    baseline = Baseline("a sliding window", "compress.measure.baselines.sliding_window:sliding_window")
    metrics = (
        Metric("f1", needs_varied_labels=False),
        Metric("exact_match", is_accuracy=True, needs_varied_labels=False),
        Metric("answerable", needs_varied_labels=False),
    )

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """Yield answers longer than a window."""
        if task.max_answer >= task.max_length:
            message = f"an answer of {task.max_answer} tokens does not fit into max_length: {task.max_length}"
            yield Problem(("task", "max_answer"), message)

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Return question, context, all accepted answers (none where there is none), and the start of the first."""
        question, context = self.parse_input(raw, task, where)
        answers, start = parse_answers(raw, context, task, where)
        return {"question": question, "context": context, "answers": answers, "start": start}

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> tuple[str, ...]:
        """Return the question and the text, neither of them empty."""
        texts = tuple(text_value(raw, name, task, where) for name in task.text)
        for name, text in zip(task.text, texts, strict=True):
            if not text.strip():
                raise DataError(f"{where}: column '{name}' is empty.", hint=SKIP_HINT)
        return texts

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """Return no answer."""
        return {"answers": [], "start": -1}

    def to_input(self, row: Row) -> TaskInput:
        """Return the question and the text."""
        return str(row["question"]), str(row["context"])

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """Return the question and the text by field."""
        question, context = column_texts(given, task)
        return {"question": question, "context": context}

    def output_count(self, task: TaskInfo) -> int:
        """Return two per token: how well an answer starts with it, and how well it ends."""
        return 2

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """Return one example per window; the label is the span in windows that hold all of it, else none (0, 0)."""
        question = truncate_text(row["question"], min(MAX_QUESTION, task.max_length // 2), encode)
        windows = encode.windows(question, row["context"], task.max_length, task.overlap, task.max_windows)
        answer = (row["start"], row["start"] + len(row["answers"][0])) if row.get("answers") else None
        examples = []
        for number, window in enumerate(windows):
            spans = window.spans or ()
            first, last = [start for start, _ in spans], [end for _, end in spans]
            example = window.example(context=[int(end > start >= 0) for start, end in spans], first=first, last=last)
            if "answers" in row:
                is_last = number == len(windows) - 1 and not window.truncated
                tokens = token_span(spans, answer, number == 0, is_last) if answer else (0, 0)
                example["start"], example["end"] = tokens
            examples.append(example)
        return examples

    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[Array]:
        """Return the score of no answer and the best spans of each window, by their characters."""
        start, end = (
            model_output(outputs, name, batch["input_ids"].shape, "windows", np.float32)
            for name in ("start_logits", "end_logits")
        )
        no_answer = start[:, 0] + end[:, 0]
        decoded = []
        for line, spans in enumerate(best_spans(start, end, batch["context"], task.max_answer)):
            first, last = batch["first"][line], batch["last"][line]
            characters = [(first[begin], last[stop], score) for begin, stop, score in spans]
            decoded.append(np.array([(-1, -1, no_answer[line]), *characters], dtype=SPAN))
        return decoded

    def predictions(self, decoded: Sequence[Array], counts: Sequence[int], rows: Rows, task: TaskInfo) -> Array:
        """Return the best span of each row over its windows, and whether it is the answer (``prediction_fields``)."""
        lines: list[tuple[Any, ...]] = []
        ends = np.cumsum(counts)
        for row, count, end in zip(rows, counts, ends, strict=True):
            spans, no_answer = merge_windows(decoded[end - count : end])
            total = np.logaddexp.reduce(spans["score"].astype(np.float64), initial=float(NO_SPAN))
            first, last, score = spans[0] if len(spans) else (-1, -1, NO_SPAN)
            text = row["context"][first : min(last, first + MAX_ANSWER_CHARS)] if len(spans) else ""
            lines.append((text, first, last, score, no_answer, total, False, 0.0))
        width = max((len(line[0]) for line in lines), default=0)
        return self.apply_threshold(np.array(lines, dtype=prediction_fields(width)), task)

    def has_threshold(self, rows: Rows) -> bool:
        """Return whether any of these questions has no answer."""
        return any(not row["answers"] for row in rows)

    def tune_threshold(self, predictions: Array, gold: Array, task: TaskInfo) -> TaskInfo:
        """Return the task with the best threshold for its metric on these rows; none where all have an answer."""
        if has_answer(gold).all():
            return task.model_copy(update={"threshold": None})
        answered, dropped = (
            self.row_scores(_answer_all(predictions, answer), gold)[task.metric] for answer in (True, False)
        )
        threshold = best_threshold(no_answer_margin(predictions), answered, dropped)
        return task.model_copy(update={"threshold": threshold})

    def apply_threshold(self, predictions: Array, task: TaskInfo) -> Array:
        """Return the same spans, answered or not by the task's threshold.

        The probability is the softmax over the best spans, and where there is a threshold also over no answer with its
        score minus the threshold: so the decision is always the most probable one.
        """
        decided = predictions.copy()
        has_span, total = predictions["start"] >= 0, predictions["total"]
        if task.threshold is None:
            decided["answered"] = has_span
            decided["probability"] = np.where(has_span, np.exp(np.minimum(predictions["score"] - total, 0.0)), 1.0)
            return decided
        no_answer = predictions["null"].astype(np.float64) - task.threshold
        decided["answered"] = has_span & (no_answer_margin(predictions) <= task.threshold)
        chosen = np.where(decided["answered"], predictions["score"], no_answer)
        decided["probability"] = np.exp(np.minimum(chosen - np.logaddexp(total, no_answer), 0.0))
        return decided

    def gold(self, rows: Rows) -> Array:
        """Return the accepted answers of each row as a JSON list in UTF-8, empty for none, and the first one's span."""
        texts = [list(dict.fromkeys(text[:MAX_ANSWER_CHARS] for text in row["answers"])) for row in rows]
        accepted = [json.dumps(each, ensure_ascii=False).encode() for each in texts]
        ends = [row["start"] + len(row["answers"][0]) if row["answers"] else -1 for row in rows]
        dtype = [("answers", f"S{max(map(len, accepted), default=2)}"), ("start", np.int32), ("end", np.int32)]
        return np.array(list(zip(accepted, (row["start"] for row in rows), ends, strict=True)), dtype=dtype)

    def row_scores(self, predictions: Array, gold: Array) -> dict[str, Array]:
        """Return F1, exact match, and whether it was predicted rightly that there is an answer."""
        accepted = [json.loads(texts) for texts in gold["answers"]]
        matches = [match_answers(text, texts) for text, texts in zip(answer_texts(predictions), accepted, strict=True)]
        exact, shared = np.array(matches, dtype=np.float64).reshape(-1, 2).T
        answerable = (predictions["answered"] == has_answer(gold)).astype(np.float64)
        return {"f1": shared, "exact_match": exact, "answerable": answerable}

    def correct(self, predictions: Array, gold: Array) -> NDArray[np.bool_]:
        """Return whether the answer is exactly one of the accepted ones."""
        return self.row_scores(predictions, gold)["exact_match"] > 0

    def same_decision(self, predictions: Array, others: Array) -> NDArray[np.bool_]:
        """Return where both give the same answer by SQuAD's comparison, or none."""
        pairs = zip(answer_texts(predictions), answer_texts(others), strict=True)
        return np.array([match_answers(ours, [theirs])[0] for ours, theirs in pairs], dtype=np.bool_)

    def distance(self, predictions: Array, others: Array) -> NDArray[np.float64]:
        """Return one minus the F1 of the two answers."""
        pairs = zip(answer_texts(predictions), answer_texts(others), strict=True)
        return np.array([1.0 - word_f1(ours, theirs) for ours, theirs in pairs], dtype=np.float64)

    def confidence(self, predictions: Array, gold: Array) -> Confidence:
        """Return one decision per row: the answer, right where it matches exactly."""
        stated = predictions["probability"].astype(np.float64)
        return Confidence(np.arange(len(gold)), stated, self.correct(predictions, gold))

    def script(self, task: TaskInfo) -> Script:
        """Print the best span, or that there is no answer where a threshold was tuned."""
        unless = "" if task.threshold is None else f' if start[0] + end[0] - score <= {task.threshold} else "no answer"'
        lines = (
            "(start, end), part = (scores[0] for scores in outputs), encoding.sequence_ids",
            f"spans = [(i, j) for i in range(len(part)) for j in range(i, min(i + {task.max_answer}, len(part)))]",
            "score, i, j = max((start[i] + end[j], i, j) for i, j in spans if part[i] == part[j] == 1)",
            f"print(pair[1][encoding.offsets[i][0] : encoding.offsets[j][1]].strip(){unless})",
        )
        return Script("the answer to each question", lines, sample='"a question" "the text with its answer"')

    def to_json(self, predictions: Array, task: TaskInfo) -> list[dict[str, Any]]:
        """Return the answer with its characters in the text, all null where there is none, and its probability."""
        rows = []
        for line in predictions:
            answer, start, end = str(line["text"]), int(line["start"]), int(line["end"])
            span = {"answer": answer, "start": start, "end": end} if line["answered"] else NO_ANSWER
            rows.append({**span, "probability": float(line["probability"])})
        return rows

    def describe(self, predictions: Array, task: TaskInfo) -> list[str]:
        """Return `characters 17-29 (83 %)`, `no answer (61 %)`."""
        spans = [_describe_span(line["start"], line["end"], line["answered"]) for line in predictions]
        return [f"{span} ({100 * line['probability']:.0f} %)" for span, line in zip(spans, predictions, strict=True)]

    def describe_gold(self, gold: Array, task: TaskInfo) -> list[str]:
        """Return `characters 17-29`."""
        return [_describe_span(line["start"], line["end"], line["start"] >= 0) for line in gold]

    def describe_in_full(self, predictions: Array, rows: Rows, task: TaskInfo) -> list[str]:
        """Return `1984 (83 %)`, `no answer (61 %)`."""
        texts = [text or "no answer" for text in answer_texts(predictions)]
        stated = predictions["probability"]
        return [f"{text} ({100 * value:.0f} %)" for text, value in zip(texts, stated, strict=True)]

    def describe_gold_in_full(self, gold: Array, rows: Rows, task: TaskInfo) -> list[str]:
        """Return `1984`; several that are accepted with "or" between them."""
        accepted = (dict.fromkeys(json.loads(texts)) for texts in gold["answers"])
        return [" or ".join(texts) or "no answer" for texts in accepted]


def prediction_fields(width: int) -> np.dtype[np.void]:
    """Return the fields of an array of predictions, for texts of up to ``width`` characters.

    The best span with its characters and score, whatever is decided, so that another threshold can be applied; the
    score of no answer; the logarithm of the sum of the best spans' exponentials; whether the span is the answer, and
    the probability of that decision.
    """
    names = ("text", "start", "end", "score", "null", "total", "answered", "probability")
    return np.dtype(list(zip(names, (f"U{max(1, width)}", "i4", "i4", "f4", "f4", "f8", "?", "f8"), strict=True)))


def has_answer(gold: Array) -> NDArray[np.bool_]:
    """Return which questions have an answer."""
    return gold["answers"] != b"[]"


def no_answer_margin(predictions: Array) -> NDArray[np.float64]:
    """Return by how much no answer scores higher than the best span."""
    return predictions["null"].astype(np.float64) - predictions["score"]


def answer_texts(predictions: Array) -> list[str]:
    """Return the text of each answer, empty where there is none."""
    return np.where(predictions["answered"], predictions["text"], "").tolist()


def _answer_all(predictions: Array, answer: bool) -> Array:
    """Return the same spans, all of them or none of them as the answer."""
    decided = predictions.copy()
    decided["answered"] = answer & (predictions["start"] >= 0)
    return decided


def _describe_span(start: Any, end: Any, answered: Any) -> str:
    return f"characters {start}-{end}" if answered else "no answer"
