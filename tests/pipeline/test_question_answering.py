"""Questions, some without an answer, through the whole pipeline; the models are tiny and know little."""

import json
from pathlib import Path

import pytest

import compress
from compress.cli import main
from compress.model_folder.model_info import read_info
from compress.models.tiny import write_tiny_model
from compress.report.report_schema import read_report
from tests.pipeline.published_checks import check_published

RECIPE = """\
task:
  kind: question_answering
  data: {{train: {folder}/train.json, test: {folder}/test.json, select_share: 0.2}}
  text: [question, context]
  label: answers
  slices: [is_impossible]
  max_length: 32
  overlap: 8
  max_answer: 6
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


def articles(count: int) -> dict[str, object]:
    """Paragraphs of different lengths with two questions each, one of which has no answer."""
    paragraphs = []
    for number in range(count):
        context = f"On day {number} there was rain. " + "The sky was dark and so it stayed. " * (number % 4)
        answer = {"text": f"day {number}", "answer_start": 3}
        questions = [
            {"id": f"{number}a", "question": "When was rain?", "answers": [answer], "is_impossible": False},
            {"id": f"{number}b", "question": "Who saw it?", "answers": [], "is_impossible": True},
        ]
        paragraphs.append({"context": context, "qas": questions})
    return {"version": "v2.0", "data": [{"title": "Rain", "paragraphs": paragraphs}]}


@pytest.mark.slow
def test_pipeline_runs_end_to_end(tmp_path: Path) -> None:
    for role, count in (("train", 40), ("test", 20)):
        (tmp_path / f"{role}.json").write_text(json.dumps(articles(count)), encoding="utf-8")
    write_tiny_model(tmp_path / "teacher", "bert")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE.format(folder=tmp_path), encoding="utf-8")
    assert main(["run", str(recipe), "--runs", str(tmp_path / "runs"), "--format", "quiet"]) == 0

    report = read_report(tmp_path / "runs" / "tiny")
    assert [row.status for row in report.rows] == ["ok"] * 9
    assert report.floor is not None
    folder = tmp_path / "runs" / "tiny" / "winner" / "cpu"
    task = read_info(folder).task
    assert task is not None
    assert task.threshold is not None  # exports inherit what was tuned
    context = "On day 7 there was rain."
    (result,) = compress.open(folder).predict([("When was rain?", context)])
    assert result["answer"] is None or result["answer"] == context[result["start"] : result["end"]]
    check_published(tmp_path, tmp_path / "test.json")
    # No file that is published holds a text of the data.
    for page in (tmp_path / "runs" / "tiny").glob("report.*"):
        assert "there was rain" not in page.read_text(encoding="utf-8")
