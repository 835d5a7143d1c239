"""Tagged sentences in columns through the whole pipeline, long ones in windows; the models are tiny."""

from pathlib import Path

import pytest

import compress
from compress.cli import main
from compress.models.tiny import write_tiny_model
from compress.report.report_schema import read_report
from tests.pipeline.published_checks import check_published

RECIPE = """\
task:
  kind: token_classification
  data: {{train: {folder}/train.conll, test: {folder}/test.conll}}
  scheme: iob1
  max_length: 32
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


def columns(count: int) -> str:
    """Sentences in IOB1, every fourth of them longer than a window."""
    sentences = []
    for number in range(count):
        lines = [f"day{number} I-DAY", "was O", ("dull O", "grand I-PLACE\nhotel I-PLACE")[number % 2]]
        sentences.append("\n".join(lines * (4 if number % 4 == 0 else 1)))
    return "-DOCSTART- O\n\n" + "\n\n".join(sentences) + "\n"


@pytest.mark.slow
def test_pipeline_runs_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text(columns(60), encoding="utf-8")
    (tmp_path / "test.conll").write_text(columns(30), encoding="utf-8")
    write_tiny_model(tmp_path / "teacher", "bert")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE.format(folder=tmp_path), encoding="utf-8")
    assert main(["run", str(recipe), "--runs", str(tmp_path / "runs"), "--format", "quiet"]) == 0

    report = read_report(tmp_path / "runs" / "tiny")
    assert [row.status for row in report.rows] == ["ok"] * 9
    assert report.floor is not None
    assert report.probe is not None
    assert report.probe_name == "a linear probe"
    result, same = compress.open(tmp_path / "runs" / "tiny" / "winner" / "cpu").predict(["day 3 was dull", ("was",)])
    assert len(result["tags"]) == 4
    assert len(same["tags"]) == 1
    check_published(tmp_path, tmp_path / "test.conll")
    for page in (tmp_path / "runs" / "tiny").glob("report.*"):
        assert "hotel" not in page.read_text(encoding="utf-8")
