"""Kinds of one text and no class a row: a run publishes a model that scores again as it did, and equals itself."""

import json
from pathlib import Path

import pytest

from compress.cli import main
from compress.models.tiny import write_tiny_model
from tests.pipeline.published_checks import check_published

RECIPE = """\
task: {{kind: {kind}, data: {{train: {folder}/train.jsonl, test: {folder}/test.jsonl}}, max_length: 32}}
teacher: {folder}/teacher
finetune: {{epochs: 1, batch_size: 8, learning_rate: 0.003}}
student: {{layers: 1}}
distill: {{epochs: 1, batch_size: 8}}
gate: {{max_drop: 1.0}}
measure: {{rounds: 3, processes: 1, seconds: 0.02, bootstrap: 100, memory: []}}
publish: {folder}/zoo
"""
WORDS = ("sun", "rain", "storm", "sky", "cloud")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["multi_label", "regression"])
def test_it_scores_again_as_it_did(kind: str, tmp_path: Path) -> None:
    labels = [["wet"], ["dry"], ["wet", "dark"]] if kind == "multi_label" else [0.0, 0.5, 1.0]
    for role, count in (("train", 60), ("test", 30)):
        rows = [{"text": f"a {WORDS[number % 5]} day {number}", "label": labels[number % 3]} for number in range(count)]
        (tmp_path / f"{role}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    write_tiny_model(tmp_path / "teacher", "bert")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE.format(kind=kind, folder=tmp_path), encoding="utf-8")
    assert main(["run", str(recipe), "--runs", str(tmp_path / "runs"), "--format", "quiet"]) == 0
    check_published(tmp_path, tmp_path / "test.jsonl")
