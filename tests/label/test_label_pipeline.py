"""From texts to a small model: labelled by a local service, then run as a recipe."""

import json

import pytest

from compress.cli import main
from compress.models.tiny import write_tiny_model
from compress.pipeline.run import Options, prepare
from compress.report.report_schema import read_report
from compress.report.tables.ledger_tables import ledger_table
from tests.label.chat_server import KEY, answer

PRICES = "prices={input: 1, output: 2}"
WORDS = ("good", "great", "fine", "bad", "dull", "not")


def run_recipe(labelling, tmp_path, *changes):
    """Run the written recipe with a tiny teacher, and return the report."""
    write_tiny_model(tmp_path / "teacher", "bert")
    quick = [
        f"teacher={tmp_path / 'teacher'}",
        "student={layers: 1}",
        "finetune={epochs: 1, batch_size: 16}",
        "distill={epochs: 1, batch_size: 16, soft_label: 1.0}",
        "quantize=null",
        "gate.max_drop=1.0",
        "measure={rounds: 3, processes: 1, seconds: 0.05, memory: [], bootstrap: 100}",
        *changes,
    ]
    given = [word for change in quick for word in ("--set", change)]
    runs = tmp_path / "runs"
    recipe = str(labelling.target / "recipe.yaml")
    assert main(["run", recipe, *given, "--runs", str(runs), "--format", "quiet"]) == 0
    return read_report(runs / "reviews")


@pytest.mark.slow
def test_from_the_command_to_a_report_and_a_card(labelling, tmp_path, capsys):
    labelling.rows([f"a {WORDS[number % 6]} film {number}" for number in range(90)])
    labelling.load()
    changes = [word for change in (PRICES, "samples=2", "held_out=0.3") for word in ("--set", change)]
    command = ["label", str(labelling.file), "--to", str(labelling.target), *changes]
    assert main([*command, "--dry-run"]) == 0
    assert "180 requests" in capsys.readouterr().out
    assert main(command) == 0
    zoo = tmp_path / "zoo"
    report = run_recipe(labelling, tmp_path, "targets=[{device: cpu, price: 0.36}]", f"publish={zoo}")
    assert report.service.tested
    assert report.service.self_agreement == 1.0
    assert report.service.cost_of_million == pytest.approx(40 + 10)
    held_out = len(labelling.read("test.jsonl"))
    assert report.results[0].test.rows == held_out
    prices = {row["model"]: row["1M texts"] for row in ledger_table(report, "cpu").rows}
    assert prices["large"] == "50.00"
    assert float(prices["student"]) < 50
    page = (tmp_path / "runs" / "reviews" / "report.md").read_text()
    assert "scores are agreement with it" in page
    assert "A million texts cost 50.00 with large" in page
    (card,) = zoo.rglob("README.md")
    line = f"answers of the service's model large; agreement with it on {held_out} answers that were held back"
    assert f"- Labels: {line}" in card.read_text()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "changes"),
    [
        ('{"label": "good"}', ["task.text=[review, topic]"]),
        ('{"labels": ["good"]}', ["task.kind=multi_label", "samples=2"]),
        ('{"score": 4}', ["task.kind=regression", "task.labels=null", "scores=[1, 5]"]),
    ],
    ids=["pairs", "multi_label", "regression"],
)
def test_other_kinds_learn_too(labelling, server, tmp_path, reply, changes):
    rows = [json.dumps({"review": f"a {WORDS[number % 6]} film {number}", "topic": "film"}) for number in range(60)]
    (labelling.folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    other = reply.replace("good", "bad").replace("4", "2")
    server.reply = lambda request: answer(reply if "good" in request["messages"][-1]["content"] else other)
    labelling.run("held_out=0.3", *changes)
    report = run_recipe(labelling, tmp_path)
    assert report.service.tested
    assert report.results[0].test.rows == len(labelling.read("test.jsonl"))


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
