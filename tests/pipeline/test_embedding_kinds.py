"""Pairs compared by embeddings, and documents found by them, through the whole pipeline; the models know little."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import compress
from compress.cli import main
from compress.models.tiny import write_tiny_model
from compress.report.report_schema import read_report
from tests.pipeline.published_checks import check_equal_to_itself, check_published

WORDS = ("sun", "rain", "storm", "sky", "cloud")

RECIPE = """\
task: {{kind: {kind}, data: {data}, max_length: 32{more}}}
teacher: {folder}/teacher
finetune: {{epochs: 1, batch_size: 8, learning_rate: 0.003}}
student: {{layers: 1{student}}}
distill: {{epochs: 1, batch_size: 8, soft_label: 1.0, hard_label: 0.0}}
prune: {{heads: 0.25, ffn: 0.5, batches: 2, recover: {{epochs: 1, batch_size: 8, soft_label: 1.0}}}}
quantize: {{methods: dynamic, max_drop: 1.0}}
gate: {{max_drop: 1.0}}
measure: {{rounds: 3, processes: 1, seconds: 0.02, bootstrap: 100, memory: []}}
publish: {folder}/zoo
"""


def pairs(count: int) -> list[dict[str, Any]]:
    """Two short texts and how alike they are, from 0 to 5; one row is out of that range."""
    rows: list[dict[str, Any]] = []
    for number in range(count):
        apart = number % 6
        first, second = WORDS[number % 5], WORDS[(number + apart) % 5]
        rows.append({"sentence1": f"a {first} day", "sentence2": f"the {second} day {number}", "score": 5 - apart})
    return [*rows, {"sentence1": "sun", "sentence2": "rain", "score": 7}]


def questions(count: int) -> list[dict[str, Any]]:
    """A question, the texts that answer it, and none for the last one."""
    rows: list[dict[str, Any]] = []
    for number in range(count):
        answers = [f"{WORDS[number % 5]} on day {number}", f"day {number} was fine"][: 1 + number % 2]
        rows.append({"query": f"what on day {number} ?", "positives": answers})
    return [*rows, {"query": "what ?", "positives": []}]


def run(kind: str, folder: Path, train: Sequence[dict[str, Any]], test: Sequence[dict[str, Any]], **more: str) -> Path:
    files = {"train": train, "test": test, "corpus": [{"text": f"nothing on day {number}"} for number in range(20)]}
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    write_tiny_model(folder / "teacher", "bert")
    roles = [role for role in files if role != "corpus" or kind == "retrieval"]
    data = "{" + ", ".join([f"{role}: {folder}/{role}.jsonl" for role in roles] + ["bad_rows: skip"]) + "}"
    recipe = folder / "tiny.yaml"
    settings = {"more": "", "student": "", **more}
    recipe.write_text(RECIPE.format(kind=kind, folder=folder, data=data, **settings), encoding="utf-8")
    assert main(["run", str(recipe), "--runs", str(folder / "runs"), "--format", "quiet"]) == 0
    return folder / "runs" / "tiny"


@pytest.mark.slow
def test_similarity_pipeline_runs_end_to_end(tmp_path: Path) -> None:
    made = run("similarity", tmp_path, pairs(60), pairs(30), more=", range: [0, 5]", student=", embedding: 16")
    report = read_report(made)
    assert [row.status for row in report.rows] == ["ok"] * 9
    assert sum(report.data.rows.values()) == 90
    assert report.data.examples_per_row == 2.0
    assert report.floor is not None
    assert report.probe is not None
    assert report.probe_name == "the untrained encoder"
    winner = compress.open(made / "winner" / "cpu")
    ((score,), (one,), (other,)) = (winner.predict([given]) for given in (("a", "b"), "a", "b"))
    assert score["score"] == pytest.approx(
        sum(x * y for x, y in zip(one["embedding"], other["embedding"], strict=True)), abs=0.05
    )
    check_published(tmp_path, tmp_path / "test.jsonl")


@pytest.mark.slow
def test_retrieval_pipeline_runs_end_to_end(tmp_path: Path) -> None:
    made = run("retrieval", tmp_path, questions(60), questions(30), more=", hard_negatives: 1")
    report = read_report(made)
    assert [row.status for row in report.rows] == ["ok"] * 9
    check_equal_to_itself(tmp_path)
    assert report.data.rows["test"] == 30
    assert report.data.documents
    assert report.data.examples_per_row == 1.0
    assert report.floor is not None
    assert report.probe is not None
    assert report.probe_name == "the untrained encoder"
    (result,) = compress.open(made / "winner" / "cpu").predict(["what on day 3 ?"])
    assert sum(value**2 for value in result["embedding"]) == pytest.approx(1.0, abs=1e-3)
