"""From texts to a small model: labelled by a local service, then run as a recipe."""

import pytest

from compress.cli import main
from compress.models.tiny import write_tiny_model
from compress.pipeline.run import Options, prepare
from compress.report.report_schema import read_report

PRICES = "prices={input: 1, output: 2}"


@pytest.mark.slow
def test_a_model_learns_from_a_service(labelling, server, tmp_path):
    words = ("good", "great", "fine", "bad", "dull", "not")
    labelling.rows([f"a {words[number % 6]} film {number}" for number in range(90)])
    labelling.run(PRICES, "samples=2", "held_out=0.3")
    write_tiny_model(tmp_path / "teacher", "bert")
    recipe = labelling.target / "recipe.yaml"
    changes = [
        f"teacher={tmp_path / 'teacher'}",
        "student={layers: 1}",
        "finetune={epochs: 1, batch_size: 16}",
        "distill={epochs: 1, batch_size: 16, soft_label: 1.0}",
        "quantize=null",
        "gate.max_drop=1.0",
        "targets=[{device: cpu, price: 0.36}]",
        "measure={rounds: 3, processes: 1, seconds: 0.05, memory: [], bootstrap: 100}",
    ]
    given = [word for change in changes for word in ("--set", change)]
    assert main(["run", str(recipe), *given, "--runs", str(tmp_path / "runs"), "--format", "quiet"]) == 0
    report = read_report(tmp_path / "runs" / "reviews")
    assert report.service.tested
    assert report.service.self_agreement == 1.0
    assert report.service.cost_of_million == pytest.approx(40 + 10)
    assert "scores are agreement with it" in report.remarks[0]
    assert "A million texts cost 50.00 with large" in " ".join(report.remarks)
    assert report.rows[0].targets["cpu"].test.rows == len(labelling.read("test.jsonl"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("service=nowhere.json", "nowhere.json cannot be read"),
        ("task.labels=[bad, fine]", "answered with other labels"),
    ],
)
def test_a_recipe_with_another_service_is_refused(labelling, capsys, change, message):
    labelling.run()
    assert main(["plan", str(labelling.target / "recipe.yaml"), "--set", change]) == 2
    assert message in capsys.readouterr().err


def test_prices_and_the_name_of_the_file_change_no_step_but_the_last(labelling, tmp_path):
    labelling.run()
    recipe = labelling.target / "recipe.yaml"

    def prints(*overrides):
        plan = prepare(recipe, overrides, Options(runs=tmp_path / "runs"))
        return {step.name: step.fingerprint for step in plan.steps}

    plain, priced = prints("service=null"), prints("targets=[{device: cpu, price: 2.0}]")
    assert {name for name in plain if plain[name] != priced[name]} == {"package", "report"}
