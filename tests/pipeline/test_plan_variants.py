"""What is planned between quantizing a model and scoring it."""

import pytest

from compress.pipeline.run import Options, prepare
from tests.conftest import write_tiny_recipe

TWO = "quantize.methods=[dynamic, static-minmax]"


@pytest.fixture
def plan_of(tmp_path):
    recipe = write_tiny_recipe(tmp_path)
    return lambda *overrides: prepare(recipe, overrides, Options(runs=tmp_path / "runs"))


def entry(plan, key):
    return next(each for each in plan.variants if each.key == key)


def changed(before, after):
    old = {step.name: step.fingerprint for step in before.steps}
    return {step.name for step in after.steps if old.get(step.name) not in (None, step.fingerprint)}


def test_every_quantized_file_is_judged_before_it_is_scored_and_tuned(plan_of):
    plan = plan_of()
    for model in ("teacher", "student", "pruned"):
        judged = plan.step(f"fallback-{model}-onnx-int8")
        assert judged.needs == (
            "data",
            f"quantize-{model}-onnx-int8",
            f"export-{model}-onnx-fp32",
            f"score-{model}-onnx-fp32-cpu-b32",
        )
        assert plan.step(f"score-{model}-onnx-int8-cpu-b1").needs == ("data", judged.name)
        assert plan.step(f"tune-{model}-onnx-int8").needs == ("data", judged.name)
        assert entry(plan, f"{model}/onnx-int8").fallback == judged.name
    assert entry(plan, "pruned/onnx-fp32").fallback is None


def test_one_method_is_not_screened(plan_of):
    assert {"screen", "admit"}.isdisjoint(step.kind for step in plan_of().steps)


def test_further_methods_are_screened_for_the_final_model(plan_of):
    plan = plan_of(TWO)
    judged = ("fallback-pruned-onnx-int8", "fallback-pruned-onnx-int8-minmax")
    assert [step.name for step in plan.steps if step.kind == "screen"] == ["screen-pruned"]
    assert plan.step("screen-pruned").needs == ("data", *judged)
    assert plan.step("screen-pruned").tolerant
    assert plan.step("admit-pruned-onnx-int8-minmax").needs == (judged[1], "screen-pruned")
    assert plan.step("score-pruned-onnx-int8-minmax-cpu-b32").needs == ("data", "admit-pruned-onnx-int8-minmax")
    assert plan.step("score-pruned-onnx-int8-cpu-b1").needs == ("data", judged[0])
    assert not [step.name for step in plan.steps if "student" in step.name and "minmax" in step.name]


def test_variants_that_the_recipe_names_are_not_screened(plan_of):
    plan = plan_of(TWO, "variants=onnx-int8-minmax")
    assert "screen" not in {step.kind for step in plan.steps}
    assert plan.step("score-pruned-onnx-int8-minmax-cpu-b32").needs[1] == "fallback-pruned-onnx-int8-minmax"


def test_the_order_of_methods_names_the_first(plan_of):
    plan = plan_of("quantize.methods=[static-minmax, dynamic]")
    assert list(plan.step("screen-pruned").settings["files"]) == ["onnx-int8-minmax", "onnx-int8"]
    assert "admit-pruned-onnx-int8" in {step.name for step in plan.steps}
    assert "quantize-student-onnx-int8" not in {step.name for step in plan.steps}


def test_what_may_be_lost_changes_judgement_and_screening_but_no_build(plan_of):
    again = changed(plan_of(TWO), plan_of(TWO, "quantize.max_drop=0.5"))
    assert {"fallback-teacher-onnx-int8", "screen-pruned", "admit-pruned-onnx-int8-minmax"} <= again
    assert not {name for name in again if name.startswith(("quantize-", "export-"))}
    assert not changed(plan_of(), plan_of(TWO)) & {"fallback-pruned-onnx-int8", "score-pruned-onnx-int8-cpu-b1"}


def test_without_a_target_here_nothing_is_judged(plan_of):
    plan = plan_of(TWO, "targets=cuda")
    assert {"fallback", "screen", "admit"}.isdisjoint(step.kind for step in plan.steps)
