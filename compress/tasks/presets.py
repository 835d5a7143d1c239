"""Tasks by name, in the recipe's long form: hub set, columns, labels, metric.

A recipe that gives files of its own (``task.data.train``) keeps columns, labels and metric; ``aliases`` are the headers
of the files as GLUE ships them, so that those work as they are. GLUE's test splits have no labels: test is the
development split. Names of labels and their order are those of the hub sets.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Preset = dict[str, Any]

SENTENCES = ("sentence1", "sentence2")
DEVELOPMENT = {"train": "train", "test": "validation"}
ALL_SPLITS = {"train": "train", "select": "validation", "test": "test"}

GLUE: Mapping[str, tuple[Sequence[str], Sequence[str], str]] = {
    "cola": (("sentence",), ("unacceptable", "acceptable"), "matthews"),
    "sst2": (("sentence",), ("negative", "positive"), "accuracy"),
    "mrpc": (SENTENCES, ("not_equivalent", "equivalent"), "f1"),
    "stsb": (SENTENCES, (), "spearman"),
    "qqp": (("question1", "question2"), ("not_duplicate", "duplicate"), "f1"),
    "mnli": (("premise", "hypothesis"), ("entailment", "neutral", "contradiction"), "accuracy"),
    "qnli": (("question", "sentence"), ("entailment", "not_entailment"), "accuracy"),
    "rte": (SENTENCES, ("entailment", "not_entailment"), "accuracy"),
    "wnli": (SENTENCES, ("not_entailment", "entailment"), "accuracy"),
}
"""Columns of text, labels (none: a score) and metric of GLUE's tasks."""

GLUE_DATA: Mapping[str, Mapping[str, Any]] = {
    "cola": {"header": ["source", "label", "mark", "sentence"]},
    "mnli": {"test": "validation_matched"},
}
"""GLUE's own files of CoLA have no header."""

GLUE_ALIASES: Mapping[str, Mapping[str, list[str]]] = {
    "mrpc": {"sentence1": ["#1 String"], "sentence2": ["#2 String"], "label": ["Quality"]},
    "stsb": {"label": ["score"]},
    "qqp": {"label": ["is_duplicate"]},
    "mnli": {"premise": ["sentence1"], "hypothesis": ["sentence2"], "label": ["gold_label"]},
}


def _task(name: str, kind: str, text: Sequence[str], metric: str, data: Mapping[str, Any], **more: Any) -> Preset:
    return {
        "name": name,
        "kind": kind,
        "data": dict(data),
        "text": list(text),
        "label": "label",
        "metric": metric,
        **more,
    }


def _glue(name: str) -> Preset:
    text, labels, metric = GLUE[name]
    data = {"hub": f"nyu-mll/glue/{name}", **DEVELOPMENT, **GLUE_DATA.get(name, {})}
    more = {"aliases": GLUE_ALIASES[name]} if name in GLUE_ALIASES else {}
    if labels:
        return _task(name, "classification", text, metric, data, labels=list(labels), **more)
    return _task(name, "regression", text, metric, data, **more)


def _arc(part: str) -> Preset:
    """Rows of the hub label choices by letter or by number from 1; copies of the files by letters.

    Such copies hold a question of three choices with an empty fourth one: `bad_rows` leaves those out.
    """
    data = {"hub": f"allenai/ai2_arc/ARC-{part}", **ALL_SPLITS, "bad_rows": "skip"}
    columns = {"label": "answerKey", "first_label": 1, "aliases": {"answerKey": ["answer"]}}
    return _task(f"arc_{part.lower()}", "multiple_choice", ("question", "choices"), "accuracy", data, **columns)


def _squad(name: str) -> Preset:
    """Other files may have one answer per line, and its offset in `answer_start`."""
    data = {"hub": f"rajpurkar/{name}", **DEVELOPMENT}
    more = {"label": "answers", "aliases": {"answers": ["answer"]}, "max_length": 384, "overlap": 128}
    return _task(name, "question_answering", ("question", "context"), "f1", data, **more)


PRESETS: tuple[Preset, ...] = (
    *map(_glue, GLUE),
    {**_glue("stsb"), "name": "stsb_embedding", "kind": "similarity", "range": [0, 5]},
    _task(
        "ag_news",
        "classification",
        ("text",),
        "accuracy",
        {"hub": "fancyzhx/ag_news", "train": "train", "test": "test"},
        labels=["World", "Sports", "Business", "Sci/Tech"],
        aliases={"text": ["description"]},
    ),
    _arc("Easy"),
    _arc("Challenge"),
    _task(
        "swag",
        "multiple_choice",
        ("startphrase", "ending0", "ending1", "ending2", "ending3"),
        "accuracy",
        {"hub": "allenai/swag/regular", **DEVELOPMENT},
    ),
    # Two of three questions have no sentence that answers them; scores are over the others.
    _task(
        "wikiqa",
        "ranking",
        ("question", "answer"),
        "map",
        {"hub": "microsoft/wiki_qa", **ALL_SPLITS, "bad_rows": "skip"},
        aliases={"answer": ["sentence"]},
    ),
    _task(
        "snips_slots",
        "token_classification",
        ("text",),
        "f1",
        {"hub": "bkonkle/snips-joint-intent", "train": "train", "test": "test"},
        label="slots",
        aliases={"text": ["input"]},
        max_length=64,
    ),
    _squad("squad"),
    _squad("squad_v2"),
    # Questions to a search engine with the paragraph that answers them; ReQA's files have other column names.
    _task(
        "answer_retrieval",
        "retrieval",
        ("query",),
        "mrr",
        {"hub": "sentence-transformers/natural-questions", "train": "train", "test_share": 0.05},
        label="answer",
        aliases={"query": ["question", "questions"], "answer": ["answers"]},
    ),
    _task(
        "sentence_starts",
        "token_classification",
        ("tokens",),
        "f1",
        {"builtin": "sentence_starts", "test_share": 0.2},
        label="tags",
        max_length=64,
    ),
)

NAMED_TASKS: Mapping[str, Preset] = {task["name"]: task for task in PRESETS}
"""GLUE's nine tasks, AG News and a set for each kind; `sentence_starts` is the quickstart's."""
