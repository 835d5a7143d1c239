"""The steps of a latency table in a run, and that a table measured again with the same choice redoes nothing."""

import json

import pytest

from compress.cli import main
from compress.console import Console
from compress.errors import UsageError
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.latency_step import WORKLOAD_FILE, check
from compress.prune.latency_table import TABLE_FILE
from compress.recipe.prune_schema import PruneTo
from tests.conftest import write_tiny_recipe
from tests.prune.test_latency_table import shape, table


@pytest.fixture
def context(tmp_path):
    for name in ("workload", "latency", "work"):
        (tmp_path / name).mkdir()
    content = {"shape": shape().model_dump(mode="json"), "length": 16}
    (tmp_path / "workload" / WORKLOAD_FILE).write_text(json.dumps(content))
    (tmp_path / "latency" / TABLE_FILE).write_text(table().model_dump_json())
    inputs = {name: tmp_path / name for name in ("workload", "latency")}
    return StepContext(inputs=inputs, work=tmp_path / "work", console=Console("quiet"))


def test_a_goal_out_of_reach_is_refused_with_what_can_be_reached(context):
    with pytest.raises(UsageError, match=r"25 cannot be reached: .* at most 19\.0 times faster"):
        check(context, PruneTo(speedup=25.0), 16)


def test_a_goal_within_reach_passes(context):
    check(context, PruneTo(speedup=12.0), 16)


def test_a_tokenizer_that_transformers_makes_from_other_files_gives_the_length(tmp_path):
    recipe, lengths = write_tiny_recipe(tmp_path), []
    recipe.write_text(recipe.read_text().replace("heads: 0.25, ffn: 0.5,", "to: {speedup: 3},"))
    tokenizer = tmp_path / "teacher" / "tokenizer.json"
    pieces = json.loads(tokenizer.read_text())["model"]["vocab"]
    for runs in ("one", "two"):
        command = ["run", str(recipe), "--runs", str(tmp_path / runs), "--format", "quiet", "--until", "workload"]
        assert main(command) == 0
        (folder,) = (tmp_path / runs / ".steps").glob("workload-*")
        lengths.append(json.loads((folder / WORKLOAD_FILE).read_bytes())["length"])
        (tmp_path / "teacher" / "vocab.txt").write_text("\n".join(sorted(pieces, key=pieces.get)))
        tokenizer.unlink(missing_ok=True)
    assert lengths[0] == lengths[1]


@pytest.mark.slow
def test_a_table_measured_again_with_the_same_choice_redoes_nothing_after_the_cut(tmp_path, monkeypatch):
    monkeypatch.setattr("compress.prune.speedup_goal.SpeedupGoal._measure", lambda self, uncut, choice: self.goal)
    measured = iter([table(layers=1, length=12), table(layers=1, length=12, fixed=1.0 + 1e-6)])
    monkeypatch.setattr("compress.prune.measure_latency.measure_latency", lambda *_, **__: next(measured))
    recipe = write_tiny_recipe(tmp_path)
    recipe.write_text(recipe.read_text().replace("heads: 0.25, ffn: 0.5,", "to: {speedup: 3},"))
    command = ["run", str(recipe), "--runs", str(tmp_path / "runs"), "--format", "quiet", "--until", "recover"]
    assert main(command) == 0
    assert main([*command, "--from", "latency"]) == 0
    runs = [json.loads(line) for line in (tmp_path / "runs" / "tiny" / "events.jsonl").read_text().splitlines()]
    started = [event["step"] for event in runs if event["event"] == "started"]
    assert started.count("latency") == 2
    assert started.count("cut") == 2
    assert started.count("distill") == 1
    (record,) = (tmp_path / "runs" / ".steps").glob("cut-*/step.json")
    measured = json.loads(record.read_bytes())["measured"]
    assert measured["table"]["fixed"] == 1.0 + 1e-6
    assert measured["attempts"][measured["chosen"]]["measured"] == measured["goal"] == 3.0
