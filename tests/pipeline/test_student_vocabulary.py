"""A student with fewer word pieces than its teacher, trained for INT8 at the end, through the whole pipeline."""

import json
from pathlib import Path

import pytest

import compress
from compress.cli import main
from compress.model_folder.model_info import read_info
from compress.models import tiny
from compress.report.report_schema import read_report
from tests.conftest import write_tiny_recipe


@pytest.mark.slow
def test_pipeline_runs_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny, "SPECIAL", (*tiny.SPECIAL, "zebra", "rhino"))  # pieces that no text has
    recipe, runs = write_tiny_recipe(tmp_path), tmp_path / "runs"
    command = ["run", str(recipe), "--runs", str(runs), "--format", "quiet"]
    changes = ("student.vocabulary=seen", "prune.vocabulary=seen", "quantize.training={epochs: 1}")
    assert main([*command, *(f"--set={change}" for change in changes)]) == 0
    report = read_report(runs / "tiny")
    assert {row.status for row in report.rows} == {"ok"}
    assert [row.model for row in report.rows[::3]] == ["teacher", "student", "pruned", "trimmed", "qat"]
    assert {model: (kept.pieces_before, kept.pieces) for model, kept in report.vocabularies.items()} == {
        "student": (143, 141),
        "trimmed": (143, 141),
    }
    assert report.vocabularies["student"].changed["train"] == 0.0
    assert {*report.pruned} == {"pruned"}
    assert report.makings["student"].start.endswith("; a vocabulary of its own")
    assert report.makings["qat"].start == "the trimmed model, trained while it computes as in INT8"
    (recovered,) = (runs / ".steps").glob("recover-*")
    assert read_info(recovered).vocabulary == report.vocabularies["student"]
    assert len(json.loads((recovered / "tokenizer.json").read_bytes())["model"]["vocab"]) == 141
    (answer,) = compress.open(runs / "tiny" / "winner" / "cpu").predict(["rain and storm on day 3"])
    assert answer["label"] in ("sunny", "rainy")
