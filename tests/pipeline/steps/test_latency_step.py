"""The steps that measure latencies, what redoes them, and what cannot be measured."""

import json
from pathlib import Path

import pytest

from compress.cli import main
from compress.console import Console
from compress.errors import UsageError
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.latency_step import WORKLOAD_FILE, check
from compress.prune.latency_table import TABLE_FILE
from compress.recipe.prune_schema import PruneTo
from tests.conftest import write_tiny_recipe
from tests.prune.test_latency_table import shape, table


@pytest.fixture
def plan_of(tmp_path: Path):
    recipe = write_tiny_recipe(tmp_path)
    recipe.write_text(recipe.read_text().replace("heads: 0.25, ffn: 0.5,", "to: {speedup: 1.5},"))
    return lambda *overrides: prepare(recipe, overrides, Options(runs=tmp_path / "runs"))


def changed_steps(plan_of, override: str) -> set[str]:
    before = {step.name: step.fingerprint for step in plan_of().steps}
    return {step.name for step in plan_of(override).steps if before.get(step.name) != step.fingerprint}


def test_latencies_are_measured_before_anything_is_trained(plan_of):
    plan = plan_of()
    names = [step.name for step in plan.steps]
    assert names[:7] == ["data", "workload", "latency", "check-speedup", "finetune", "distill", "cut"]
    assert "latency" in plan.step("cut").needs
    assert plan.step("latency").needs == ("workload",)
    assert plan.step("latency").settings["variant"] == "onnx-int8"


@pytest.mark.parametrize(
    ("override", "changed", "unchanged"),
    [
        ("finetune.epochs=7", {"finetune", "distill", "cut"}, {"workload", "latency", "check-speedup"}),
        ("prune.to.speedup=2", {"check-speedup", "cut"}, {"latency", "distill"}),
        ("prune.criterion=taylor", {"cut"}, {"latency", "check-speedup"}),
        ("prune.variant=onnx-fp32", {"latency", "cut"}, {"workload", "distill"}),
        ("targets=[{device: cpu, length: 16}]", {"workload", "latency", "cut"}, {"finetune", "distill"}),
        ("student.layers=2", {"workload", "latency", "cut"}, {"finetune"}),
        ("seed=1", {"finetune", "distill", "cut"}, {"workload", "latency", "check-speedup"}),
        ("prune.recover.epochs=7", {"recover"}, {"latency", "cut"}),
    ],
)
def test_what_redoes_the_table_and_the_cut(plan_of, override, changed, unchanged):
    steps = changed_steps(plan_of, override)
    assert changed <= steps
    assert not unchanged & steps


def test_a_goal_of_time_needs_the_same_steps(plan_of):
    plan = plan_of("prune.to={p50: 0.5ms}")
    assert plan.recipe.prune.criterion == "fisher"
    assert plan.step("check-speedup").settings == {"p50": "0.5ms", "round_to": plan.recipe.prune.round_to}
    steps = {step.name: step.fingerprint for step in plan_of().steps}
    assert plan.step("latency").fingerprint == steps["latency"]
    assert plan.step("cut").fingerprint != steps["cut"]


def test_goal_is_of_the_named_target(plan_of):
    targets = "targets=[cpu, {name: batches, device: cpu, batch: 8}]"
    assert plan_of(targets).step("latency").settings["batch"] == 1
    assert plan_of(targets, "prune.target=batches").step("latency").settings["batch"] == 8


def test_without_quantizing_the_goal_is_of_fp32(plan_of):
    assert plan_of("quantize=null").step("latency").settings["variant"] == "onnx-fp32"


@pytest.mark.parametrize("methods", ["int8", "[embeddings-4bit]", "[static-minmax]", "[nncf]"])
def test_whatever_quantizes_the_goal_is_of_int8(plan_of, methods):
    assert (
        plan_of(f"quantize.methods={methods}", "export=[onnx, openvino]").step("latency").settings["variant"]
        == "onnx-int8"
    )


def test_a_variant_that_does_not_compete_can_be_the_goals(plan_of):
    plan = plan_of("quantize=null", "prune.variant=onnx-int8")
    assert plan.step("latency").settings["variant"] == "onnx-int8"
    assert all(entry.variant.name != "onnx-int8" for entry in plan.variants)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["prune.target=cpux"], "no target is called 'cpux'"),
        (["prune.variant=onnx-int9"], "no latency variant is called 'onnx-int9'"),
        (["prune.criterion=fishr"], "no pruning criterion is called 'fishr'; did you mean fisher?"),
        (["export=[]", "quantize=null"], r"measured in onnx-fp32, and this recipe exports nothing \(export a format"),
        (["prune.to.speedup=1"], "greater than 1"),
        (["prune.to={p50: 0.5}"], "expected a latency with its unit such as 0.5ms or 800us, got '0.5'"),
        (["prune.to={p50: fastms}"], "expected a latency such as 0.5ms or 800us, got 'fastms'"),
        (["prune.to={p50: 0ms}"], "greater than 0"),
        (["prune.to={p50: 1ms, speedup: 2}"], "give one goal"),
        (["prune.to.parameters=0.5"], "give one goal"),
        (["prune.heads=0.5"], "either the shares removed"),
        (["prune.even=true"], "leave out even"),
        (["targets=[{device: cpu, threads: 1024}]"], "needs 1024 cores"),
        (["prune.latency_table=nowhere.json"], "nowhere.json cannot be read"),
        (["prune.latency_table=nowhere.json", "prune.target=cpu"], "give either target"),
    ],
)
def test_bad_input_is_one_error(plan_of, overrides, reason):
    with pytest.raises(UsageError, match=reason):
        plan_of(*overrides)


def test_keys_of_latency_without_such_a_goal_are_refused(plan_of):
    with pytest.raises(UsageError, match="target: only for a goal of latency"):
        plan_of("prune.to={parameters: 0.5}", "prune.target=cpu")


def test_a_table_from_elsewhere_replaces_the_steps(plan_of, tmp_path):
    path = tmp_path / "phone.json"
    path.write_text(table().model_dump_json())
    plan = plan_of(f"prune.latency_table={path}")
    assert not {"workload", "latency"} & {step.name for step in plan.steps}
    before = plan.step("cut").fingerprint
    other = tmp_path / "copy.json"
    other.write_text(path.read_text())
    assert plan_of(f"prune.latency_table={other}").step("cut").fingerprint == before
    other.write_text(table(fixed=2.0).model_dump_json())
    assert plan_of(f"prune.latency_table={other}").step("cut").fingerprint != before


def test_a_table_of_another_precision_is_refused(plan_of, tmp_path):
    path = tmp_path / "phone.json"
    path.write_text(table(variant="onnx-fp32").model_dump_json())
    with pytest.raises(UsageError, match="was measured in onnx-fp32, and the goal is of onnx-int8"):
        plan_of(f"prune.latency_table={path}")


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
