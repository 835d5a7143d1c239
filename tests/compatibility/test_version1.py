"""Runs, models and zoo entries that the first version wrote still open, report, predict and verify.

``version1.tar.xz`` was made by ``make_version1.py`` at commit f66e7e7, before files and steps were reorganised.
"""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

import compress
from compress.cli import main

ARCHIVE = Path(__file__).with_name("version1.tar.xz")
FOLDERS = ("teacher", "pruned", "onnx-fp32", "onnx-int8")


@pytest.fixture(scope="module")
def version1(tmp_path_factory):
    folder = tmp_path_factory.mktemp("version1")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "version1" if (folder / "version1").is_dir() else folder


@pytest.fixture
def workspace(version1, tmp_path, monkeypatch):
    """A copy of everything as the working directory, since the recipe's paths are relative to it."""
    shutil.copytree(version1, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def tolerance(folder):
    """INT8 products differ between processors."""
    return 0.02 if folder.endswith("int8") else 1e-4


@pytest.mark.parametrize("folder", FOLDERS)
def test_models_predict_what_they_predicted(version1, folder):
    model = compress.open(version1 / "models" / folder)
    for expected in json.loads((version1 / "models" / "expected.json").read_text())[folder]:
        (prediction,) = model.predict([expected["text"]])
        if prediction["label"] == expected["label"]:
            assert prediction["probability"] == pytest.approx(expected["probability"], abs=tolerance(folder))
        else:  # two classes close to each other
            assert prediction["probability"] == pytest.approx(1 - expected["probability"], abs=tolerance(folder))


def test_an_embedding_model_scores_pairs_as_before(version1):
    expected = json.loads((version1 / "models" / "expected.json").read_text())["embedding-pairs"]
    model = compress.open(version1 / "models" / "embedding")
    for pair in expected:
        (prediction,) = model.predict([tuple(pair["text"])])
        assert prediction["score"] == pytest.approx(pair["score"], abs=1e-3)


def test_pruned_models_load_as_torch_modules(version1):
    model = compress.load(version1 / "models" / "pruned")
    assert type(model).__name__ == "CompressBertForSequenceClassification"


def test_finished_runs_are_listed_and_reported(workspace, capsys):
    assert main(["ls", "runs", "--format", "json"]) == 0
    assert "weather" in capsys.readouterr().out
    before = json.loads((workspace / "runs/weather/report.json").read_text())
    assert main(["report", "weather", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["model"] for row in before["rows"]] == [row["model"] for row in shown["rows"]]
    assert "pruned/onnx-int8" in (workspace / "runs/weather/report.md").read_text()


def test_winners_predict(workspace, capsys):
    assert main(["predict", "runs/weather/winner/cpu", "a wet day and warm rain"]) == 0
    assert "rainy" in capsys.readouterr().out


def test_zoo_entries_verify_predict_and_can_be_pulled(workspace, capsys):
    assert main(["verify", "zoo/weather"]) == 0
    assert main(["predict", "zoo/weather", "a wet day and warm rain"]) == 0
    assert "rainy" in capsys.readouterr().out
    assert main(["pull", "zoo/weather", "pulled"]) == 0
    assert main(["verify", "pulled"]) == 0


def test_finished_runs_can_be_published(workspace, capsys):
    assert main(["publish", "weather", "--to", "new", "--name", "again"]) == 0
    assert main(["verify", "new/again"]) == 0


@pytest.mark.parametrize("option", ["--name", "--to"])
@pytest.mark.parametrize("value", ["../x", "", ".hidden", "a/b", "a" * 250, "a\n"])
def test_unusable_names_and_zoos_are_usage_errors(option, value, workspace, capsys):
    if option == "--to":
        value = f"/dev/null/{value}"
    assert main(["publish", "weather", option, value]) == 2
    assert "unexpected failure" not in capsys.readouterr().err


@pytest.mark.slow
def test_its_recipe_runs_again_in_its_folder(workspace):
    """Splits and heads are made differently since, so its trainings are not reused; new ones are."""
    events = workspace / "runs/weather/events.jsonl"

    def run():
        before = len(events.read_text().splitlines())
        assert main(["run", "weather", "--cards", "cards", "--until", "distill", "--format", "quiet"]) == 0
        new = [json.loads(line) for line in events.read_text().splitlines()[before:]]
        return {event["step"] for event in new if event["event"] == "skipped"}

    assert run() == set()
    assert {"data", "finetune", "distill"} <= run()
