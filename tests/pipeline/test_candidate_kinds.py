"""Questions with choices, and with candidates to rank, through the whole pipeline; the models know little."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import compress
from compress.cli import main
from compress.models.tiny import write_tiny_model
from compress.report.report_schema import read_report
from tests.pipeline.published_checks import check_published

WORDS = ("sun", "rain", "storm", "sky", "cloud")

RECIPE = """\
task: {{kind: {kind}, data: {{train: {folder}/train.jsonl, test: {folder}/test.jsonl, bad_rows: skip}}, max_length: 32}}
teacher: {folder}/teacher
finetune: {{epochs: 1, batch_size: 8, learning_rate: 0.003}}
student: {{layers: 1}}
distill: {{epochs: 1, batch_size: 8, soft_label: 1.0, hidden_state: 1.0, attention: 1.0}}
prune: {{heads: 0.25, ffn: 0.5, batches: 2, recover: {{epochs: 1, batch_size: 8}}}}
quantize: {{methods: dynamic, max_drop: 1.0}}
gate: {{max_drop: 1.0}}
measure: {{rounds: 3, processes: 1, seconds: 0.02, bootstrap: 100, memory: []}}
publish: {folder}/zoo
"""


def choices(count: int) -> list[dict[str, object]]:
    """Two to four choices; one row has an answer that is none of them."""
    rows: list[dict[str, object]] = []
    for number in range(count):
        listed = [WORDS[(number + index) % 5] for index in range(2 + number % 3)]
        rows.append({"question": f"what on day {number} ?", "choices": listed, "answer": "AB"[number % 2]})
    return [*rows, {"question": "what ?", "choices": ["sun", "rain"], "answer": "E"}]


def candidates(count: int) -> list[dict[str, object]]:
    """Two to four candidates a question, one a line; the last question has no right one."""
    lines: list[dict[str, object]] = []
    for number in range(count):
        for index in range(2 + number % 3):
            word, right = WORDS[(number + index) % 5], int(index == number % 2)
            lines.append({"query": f"what on day {number} ?", "candidate": f"a {word} day", "label": right})
    return [*lines, {"query": "what ?", "candidate": "sun", "label": 0}]


def write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rows"), [("multiple_choice", choices), ("ranking", candidates)])
def test_pipeline_runs_end_to_end(kind: str, rows: Callable[[int], list[dict[str, object]]], tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", rows(60))
    write(tmp_path / "test.jsonl", rows(30))
    write_tiny_model(tmp_path / "teacher", "bert")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE.format(kind=kind, folder=tmp_path), encoding="utf-8")
    assert main(["run", str(recipe), "--runs", str(tmp_path / "runs"), "--format", "quiet"]) == 0

    report = read_report(tmp_path / "runs" / "tiny")
    assert [row.status for row in report.rows] == ["ok"] * 9
    assert sum(report.data.rows.values()) == 90  # two do not fit and are left out
    assert report.floor is not None
    winner = compress.open(tmp_path / "runs" / "tiny" / "winner" / "cpu")
    (result,) = winner.predict([("what on day 3 ?", "sun", "rain", "storm")])
    values = result["probabilities"] if kind == "multiple_choice" else result["scores"]
    assert len(values) == 3
    check_published(tmp_path, tmp_path / "test.jsonl")
