"""Tiny models and rows of every task kind."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compress.models.tiny import write_tiny_model

NOUNS = ("film", "plot", "story", "actor", "music", "scene", "ending", "cast")
GOOD, BAD = ("great", "fine", "good", "bright"), ("dull", "bad", "poor", "weak")


def _sentence(draw: random.Random, good: bool) -> str:
    middle = " ".join(draw.choices(NOUNS, k=draw.randint(1, 9)))
    return f"the {middle}, {draw.choice(GOOD if good else BAD)} {draw.choice(NOUNS)}."


def _row(kind: str, draw: random.Random) -> dict[str, Any]:
    good = draw.random() < 0.5
    text, other = _sentence(draw, good), _sentence(draw, draw.random() < 0.5)
    words = text.replace(",", "").replace(".", "").split()
    praise = draw.choice(GOOD)
    pair = [_sentence(draw, True), _sentence(draw, False)]
    rows: dict[str, dict[str, Any]] = {
        "classification": {"text": text, "label": "good" if good else "bad"},
        "multi_label": {"text": text, "label": ["good"] if good else ["bad", "long"] if len(text) > 40 else ["bad"]},
        "regression": {"text": text, "label": len(text) / 10},
        "similarity": {"sentence1": text, "sentence2": other, "score": draw.random()},
        "token_classification": {
            "tokens": words,
            "tags": ["B-quality" if word in GOOD + BAD else "O" for word in words],
        },
        "question_answering": {
            "question": "how was it",
            "context": f"the film was {praise} for {draw.choice(NOUNS)} and {draw.choice(NOUNS)}",
            "answers": praise,
        },
        "multiple_choice": {"question": "which is good", "choices": pair, "answer": 0},
        "ranking": {"query": "good", "documents": pair, "label": [1, 0]},
        "retrieval": {"query": text, "positives": [other]},
    }
    return rows[kind]


SETTINGS: dict[str, dict[str, Any]] = {
    "classification": {},
    "multi_label": {"labels": ["bad", "good", "long"]},
    "regression": {},
    "similarity": {"range": [0, 1]},
    "token_classification": {},
    "question_answering": {},
    "multiple_choice": {},
    "ranking": {"text": ["query", "documents"]},
    "retrieval": {"text": "query", "label": "positives"},
}


@pytest.fixture(scope="session")
def make_recipe(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that writes rows of a kind and a recipe."""

    def make(kind: str, rows: int = 400, change: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        draw = random.Random(7)
        lines = [_row(kind, draw) for _ in range(rows)]
        text = "\n".join(json.dumps(change(row) if change else row) for row in lines)
        (folder / "rows.jsonl").write_text(text + "\n")
        task = {"kind": kind, "data": {"train": str(folder / "rows.jsonl"), "test_share": 0.1}, **SETTINGS[kind]}
        (folder / "recipe.yaml").write_text(json.dumps({"task": task, "teacher": "minilm-l6"}))
        return folder / "recipe.yaml"

    return make


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that writes a tiny encoder of a family."""
    made: dict[tuple[str, int], Path] = {}

    def make(family: str = "bert", seed: int = 0) -> Path:
        if (family, seed) not in made:
            made[family, seed] = tmp_path_factory.mktemp("models") / f"{family}-{seed}"
            write_tiny_model(made[family, seed], family, seed)
        return made[family, seed]

    return make
