"""Tasks by name, in the recipe's long form: hub set, columns, labels, metric.

A recipe that gives files of its own (``task.data.train``) keeps columns, labels and metric; ``aliases`` are the headers
of the files as GLUE ships them, so that those work as they are. GLUE's test splits have no labels: test is the
development split. Names of labels and their order are those of the hub sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GLUE = "nyu-mll/glue"
SENTENCES = ("sentence1", "sentence2")


def _glue(
    name: str, text: tuple[str, ...], labels: tuple[str, ...] | None, metric: str, test: str = "validation", **more: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "regression" if labels is None else "classification",
        "data": {"hub": f"{GLUE}/{name}", "train": "train", "test": test, **more.pop("data", {})},
        "text": list(text),
        "label": "label",
        **({} if labels is None else {"labels": list(labels)}),
        "metric": metric,
        **more,
    }


def _arc(part: str) -> dict[str, Any]:
    """Rows of the hub label choices by letter or by number from 1; copies of the files by letters.

    Such copies hold a question of three choices with an empty fourth one: `bad_rows` leaves those out.
    """
    splits = {"train": "train", "select": "validation", "test": "test"}
    return {
        "name": f"arc_{part.lower()}",
        "kind": "multiple_choice",
        "data": {"hub": f"allenai/ai2_arc/ARC-{part}", **splits, "bad_rows": "skip"},
        "text": ["question", "choices"],
        "label": "answerKey",
        "first_label": 1,
        "aliases": {"answerKey": ["answer"]},
        "metric": "accuracy",
    }


def _squad(name: str, hub: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "question_answering",
        "data": {"hub": hub, "train": "train", "test": "validation"},
        "text": ["question", "context"],
        "label": "answers",
        # Files with one answer per line, and its offset in `answer_start`.
        "aliases": {"answers": ["answer"]},
        "metric": "f1",
        "max_length": 384,
        "overlap": 128,
    }


NAMED_TASKS: Mapping[str, Mapping[str, Any]] = {
    "cola": _glue(
        "cola",
        ("sentence",),
        ("unacceptable", "acceptable"),
        "matthews",
        # GLUE's own files have no header.
        data={"header": ["source", "label", "mark", "sentence"]},
    ),
    "sst2": _glue("sst2", ("sentence",), ("negative", "positive"), "accuracy"),
    "mrpc": _glue(
        "mrpc",
        SENTENCES,
        ("not_equivalent", "equivalent"),
        "f1",
        aliases={"sentence1": ["#1 String"], "sentence2": ["#2 String"], "label": ["Quality"]},
    ),
    "stsb": _glue("stsb", SENTENCES, None, "spearman", aliases={"label": ["score"]}),
    "stsb_embedding": {
        **_glue("stsb", SENTENCES, None, "spearman", aliases={"label": ["score"]}),
        "name": "stsb_embedding",
        "kind": "similarity",
        "range": [0, 5],
    },
    "qqp": _glue(
        "qqp",
        ("question1", "question2"),
        ("not_duplicate", "duplicate"),
        "f1",
        aliases={"label": ["is_duplicate"]},
    ),
    "mnli": _glue(
        "mnli",
        ("premise", "hypothesis"),
        ("entailment", "neutral", "contradiction"),
        "accuracy",
        test="validation_matched",
        aliases={"premise": ["sentence1"], "hypothesis": ["sentence2"], "label": ["gold_label"]},
    ),
    "qnli": _glue("qnli", ("question", "sentence"), ("entailment", "not_entailment"), "accuracy"),
    "rte": _glue("rte", SENTENCES, ("entailment", "not_entailment"), "accuracy"),
    "wnli": _glue("wnli", SENTENCES, ("not_entailment", "entailment"), "accuracy"),
    "ag_news": {
        "name": "ag_news",
        "kind": "classification",
        "data": {"hub": "fancyzhx/ag_news", "train": "train", "test": "test"},
        "text": ["text"],
        "label": "label",
        "labels": ["World", "Sports", "Business", "Sci/Tech"],
        "aliases": {"text": ["description"]},
        "metric": "accuracy",
    },
    "arc_easy": _arc("Easy"),
    "arc_challenge": _arc("Challenge"),
    "swag": {
        "name": "swag",
        "kind": "multiple_choice",
        "data": {"hub": "allenai/swag/regular", "train": "train", "test": "validation"},
        "text": ["startphrase", "ending0", "ending1", "ending2", "ending3"],
        "label": "label",
        "metric": "accuracy",
    },
    "wikiqa": {
        "name": "wikiqa",
        "kind": "ranking",
        # Two of three questions have no sentence that answers them; scores are over the others.
        "data": {
            "hub": "microsoft/wiki_qa",
            "train": "train",
            "select": "validation",
            "test": "test",
            "bad_rows": "skip",
        },
        "text": ["question", "answer"],
        "label": "label",
        "aliases": {"answer": ["sentence"]},
        "metric": "map",
    },
    "snips_slots": {
        "name": "snips_slots",
        "kind": "token_classification",
        "data": {"hub": "bkonkle/snips-joint-intent", "train": "train", "test": "test"},
        "text": ["text"],
        "label": "slots",
        "aliases": {"text": ["input"]},
        "metric": "f1",
        "max_length": 64,
    },
    "squad": _squad("squad", "rajpurkar/squad"),
    "squad_v2": _squad("squad_v2", "rajpurkar/squad_v2"),
    "answer_retrieval": {
        "name": "answer_retrieval",
        "kind": "retrieval",
        # Questions to a search engine with the paragraph that answers them; ReQA's files have other column names.
        "data": {"hub": "sentence-transformers/natural-questions", "train": "train", "test_share": 0.05},
        "text": ["query"],
        "label": "answer",
        "aliases": {"query": ["question", "questions"], "answer": ["answers"]},
        "metric": "mrr",
    },
    "docstrings": {
        "name": "docstrings",
        "kind": "classification",
        "data": {"builtin": "docstrings", "test_share": 0.15},
        "text": ["text"],
        "label": "library",
        "metric": "accuracy",
        "max_length": 64,
    },
}
"""GLUE's nine tasks, AG News and a set for each kind; `docstrings` classifies sentences by library."""

KIND_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "token_classification": {"text": ["tokens"], "label": "tags"},
    "question_answering": {"text": ["question", "context"], "label": "answers", "max_length": 384},
    "multiple_choice": {"text": ["question", "choices"], "label": "answer"},
    "similarity": {"text": ["sentence1", "sentence2"], "label": "score"},
    "retrieval": {"text": ["query"], "label": "positives"},
    "ranking": {"text": ["query", "candidate"], "label": "label"},
}
"""Columns of a recipe that gives a kind and no columns."""
