import json
from argparse import Namespace

import pytest

from compress.cli import main
from compress.pipeline.commands.listing import LISTINGS, WINNER_KEYS


def test_losses_list_their_settings_and_defaults():
    rows = {row["name"]: row for row in LISTINGS["losses"](Namespace())}
    assert [name for name, row in rows.items() if row["by default"]] == ["soft_label", "hidden_state", "attention"]
    assert rows["soft_label"]["knobs"] == ["form: kl|mse|decoupled", "temperature", "target: 1", "others: 8"]
    assert rows["relation"]["knobs"] == ["pairs: [qq, kk, vv]", "heads", "layer"]
    assert rows["embedding"]["knobs"] == []


class TestRuns:
    ROWS = (
        {"name": "small", "score": 0.90, "p50_ms": 0.5, "bytes": 1_000_000, "created": "2026-11-01T00:00:00+00:00"},
        {"name": "large", "score": 0.95, "p50_ms": 5.0, "bytes": 90_000_000, "created": "2026-11-03T00:00:00+00:00"},
        {"name": "untimed", "score": 0.92, "p50_ms": None, "bytes": None, "created": "2026-11-02T00:00:00+00:00"},
        {"name": "unfinished", "score": None, "p50_ms": None, "bytes": None, "created": None},
    )

    @pytest.fixture
    def names(self, tmp_path, monkeypatch, capsys):
        for row in self.ROWS:
            (tmp_path / row["name"]).mkdir()
            (tmp_path / row["name"] / "lock.json").write_text("{}")
        facts = {"task": "films", "target": "cpu", "winner": "student/onnx-int8", "metric": "accuracy"}

        def winners(folder):
            (row,) = (each for each in self.ROWS if each["name"] == folder.name)
            yield {**dict.fromkeys(WINNER_KEYS), **facts, "larger_is_better": True, **row}

        monkeypatch.setattr("compress.pipeline.commands.listing._winners", winners)

        def listed(*words):
            assert main(["ls", "runs", "--runs", str(tmp_path), "--format", "json", *words]) == 0
            return [row["name"] for row in json.loads(capsys.readouterr().out)]

        return listed

    @pytest.mark.parametrize(
        ("words", "names_listed"),
        [
            ([], ["large", "small", "unfinished", "untimed"]),
            (["--task", "films"], ["large", "small", "unfinished", "untimed"]),
            (["--task", "other"], []),
            (["--target", "phone"], []),
            (["--min-score", "0.92"], ["large", "untimed"]),
            (["--max-p50", "800us"], ["small"]),
            (["--max-size", "5MB"], ["small"]),
            (["--sort", "score"], ["large", "untimed", "small", "unfinished"]),
            (["--sort", "p50"], ["small", "large", "unfinished", "untimed"]),
            (["--sort", "size"], ["small", "large", "unfinished", "untimed"]),
            (["--sort", "date"], ["large", "untimed", "small", "unfinished"]),
        ],
    )
    def test_they_are_filtered_and_sorted(self, words, names_listed, names):
        assert names(*words) == names_listed

    def test_filters_are_for_runs(self, capsys):
        assert main(["ls", "tasks", "--max-size", "5MB", "--sort", "size"]) == 2
        assert "--max-size, --sort has an effect on one list only" in capsys.readouterr().err
