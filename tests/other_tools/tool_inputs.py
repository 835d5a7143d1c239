"""The texts that every tool is given, and by task kind the rows that are made of them."""

from collections.abc import Sequence

from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import TaskInput

Row = tuple[str, ...]
"""One run of a model: a text, or two that are read together."""

PLAIN = (
    "The second half is slower than the first, and yet nobody left before the end.",
    "A dull plot with great actors.",
    "not bad at all",
    "I would not watch this again.",
    "Great fun for the whole family, and one of the worst endings in years!",
    "It rained for three days, so the match was moved to Sunday.",
    "Play the new album by the singer of that band in my kitchen.",
    "What is the weather in Lisbon on the fourth of May?",
    "Book a table for six at a restaurant with a terrace in Ohio.",
    "Add this song to my running playlist.",
    "Rate the book that I finished yesterday four of six stars.",
    "Which gas do plants take from the air?",
    "Water boils at a lower temperature on a high mountain.",
    "A compass needle points north because the Earth is a magnet.",
    "The heart pumps blood through the body.",
    "Friction between two surfaces makes heat.",
    "When was the bridge over the river opened?",
    "The bridge was opened in 1894 after eight years of work, and it was widened in 1962.",
    "The company sold its factory in spring and its shares rose by 4.5 %.",
    "Shares of the company rose after it had sold a factory.",
    "A man is playing a guitar on a bench.",
    "Someone plays an instrument outdoors.",
    "Two dogs run along the beach.",
    "The committee's report, which nobody had read, was approved by 12 votes to 3.",
    "Her first novel was written in a lighthouse and published in Vienna.",
)
SHORT = ("", " ", "a", "7", "?", "No.", "OK")
UNUSUAL = (
    "\U0001f600 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "what a film \U0001f62d\U0001f62d\U0001f62d",
    "\u8fd9\u90e8\u7535\u5f71\u5f88\u597d\u770b\u3002",
    "\u6211\u4e0d\u559c\u6b22\u8fd9\u672c\u4e66\uff0c\u56e0\u4e3a\u5b83\u592a\u957f\u4e86\u3002",
    "The word \u7535\u5f71 means film.",
    "caf\u00e9 na\u00efve Stra\u00dfe \u0130stanbul \ufb01lm",
    "\u042d\u0442\u043e \u0445\u043e\u0440\u043e\u0448\u0438\u0439 \u0444\u0438\u043b\u044c\u043c.",
    "\u0647\u0630\u0627 \u0627\u0644\u0641\u064a\u0644\u0645 \u062c\u064a\u062f",
    "one\ttwo\nthree  four",
    "zero\u200bwidth \u00a0 and no-break",
    "don't can't we'll o'clock rock'n'roll",
    "[SEP] written in a text",
    "x" * 120,
    "3.14159 \u2212 40 \u00b0C, 1,000,000 \u00bd",
)
LONG = (
    "A slow and clumsy story that never ends. " * 250,
    "good film " * 1000,
    "The view from the tower was wonderful, " * 40,
    "\u7535\u5f71" * 1000,
)
"""Of 2,000 words; of 280; of 2,000 Chinese characters."""

TEXTS = (*PLAIN, *SHORT, *UNUSUAL, *LONG)

QUESTIONS = ("When was it opened?", "Who has read the report?", "What makes heat?", "Where was the novel written?")
CHOICES = 4
"""Choices of a question, and candidates of a query."""


def rows_of(task: TaskInfo | None) -> list[Row]:
    """Return what a model of this task is run on, row by row: choices and candidates each with their question."""
    if task is None or len(task.text) == 1 or task.kind in ("similarity", "retrieval"):
        return [(text,) for text in TEXTS]
    if task.kind == "question_answering":
        return [(QUESTIONS[index % len(QUESTIONS)], text) for index, text in enumerate(TEXTS)]
    if task.kind in ("multiple_choice", "ranking"):
        return [
            (TEXTS[first], TEXTS[(first + each) % len(TEXTS)]) for first in _heads() for each in range(1, CHOICES + 1)
        ]
    return [(text, TEXTS[(index + 7) % len(TEXTS)]) for index, text in enumerate(TEXTS)]


def inputs_of(task: TaskInfo) -> Sequence[TaskInput]:
    """Return the same rows one by one, as `predict` takes them."""
    return [row[0] if len(row) == 1 else row for row in rows_of(task)]


def _heads() -> range:
    """Every fourth text begins a question: 13 questions with four others each."""
    return range(0, len(TEXTS), CHOICES)
