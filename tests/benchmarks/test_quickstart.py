"""The benchmark of the quickstart, on the report of a stored run."""

import json
from pathlib import Path

import pytest

from benchmarks import quickstart
from benchmarks.quickstart import Entry, QuickstartReport, goals, page
from compress.errors import CompressError
from compress.report.report_schema import read_report

STORED = Path(__file__).parents[2] / "reports" / "sst2-small" / "report.json"


@pytest.fixture
def ran(monkeypatch):
    """The overrides of each run; every run gives the same report."""
    overrides = []

    def run_recipe(name, **options):
        overrides.append((name, *options["overrides"]))
        return read_report(STORED)

    monkeypatch.setattr(quickstart, "run_recipe", run_recipe)
    return overrides


def entry(seed=0, **changed):
    facts = {
        "processor": "a processor",
        "metric": "f1",
        "scores": {"bag of words": 0.5, "probe": 0.3, "teacher": 0.85, "winner": 0.84},
        "p_values": {"bag of words": 0.0, "probe": 0.0},
        "winner": "pruned/onnx-int8",
        "gate": "passed",
        "faster": 15.0,
        "smaller": 8.0,
        "training": 120.0,
        "seconds": 300.0,
    }
    return Entry(seed=seed, **{**facts, **changed})


def verdicts(*entries):
    return [goal["verdict"] for goal in goals(QuickstartReport(begun_at="", made_by="", entries=entries))]


def test_every_seed_runs_once_and_is_resumed(ran, tmp_path, capsys):
    for _ in range(2):
        assert quickstart.main(["--seeds", "2", "--out", str(tmp_path / "out"), "--work", str(tmp_path)]) == 0
    assert ran == [("quickstart", f"seed={seed}", "publish=null") for seed in range(2)]
    stored = json.loads((tmp_path / "out" / "report.json").read_bytes())
    assert [each["seed"] for each in stored["entries"]] == [0, 1]
    assert (tmp_path / "out" / "report.md").read_text().count("student/onnx-int8") == 0
    capsys.readouterr()


def test_what_a_report_gives(ran):
    result = quickstart.entry_of(read_report(STORED), 3)
    assert result.key == "3"
    assert result.winner == "student/onnx-int8"
    assert {"bag of words", "teacher", "student", "winner"} <= set(result.scores)
    assert result.faster == pytest.approx(12.1, abs=0.1)
    assert 0 < result.training < result.seconds


def test_a_trial_is_small_and_stores_nothing(ran, tmp_path, capsys):
    assert quickstart.main(["--trial", "--work", str(tmp_path)]) == 0
    assert ran == [("quickstart", "seed=0", "publish=null", *quickstart.TRIAL)]
    assert list(tmp_path.iterdir()) == []
    capsys.readouterr()


def test_a_run_that_fails_ends_the_benchmark(monkeypatch, tmp_path, capsys):
    def fail(*_, **__):
        raise CompressError("no packages")

    monkeypatch.setattr(quickstart, "run_recipe", fail)
    assert quickstart.main(["--out", str(tmp_path / "out"), "--work", str(tmp_path)]) == 1
    assert "no packages" in capsys.readouterr().err


def test_goals():
    assert verdicts(entry(), entry(1)) == ["met"] * 5
    assert verdicts() == ["not measured"] * 5
    worse = entry(1, scores={"bag of words": 0.9, "probe": 0.3, "teacher": 0.79}, gate=None, faster=None)
    assert verdicts(entry(), worse) == ["missed", "met", "missed", "missed", "missed"]
    assert verdicts(entry(p_values={"bag of words": 0.02, "probe": 0.0}))[0] == "missed"


def test_page_names_other_processors():
    text = page(QuickstartReport(begun_at="now", made_by="compress", entries=(entry(), entry(1, gate=None))))
    assert "| 0 | 0.5000 | 0.3000 | 0.8500 |  |  | 0.8400 | 98.8 % | passed |" in text.replace("-", "")
    assert "no winner" in text
