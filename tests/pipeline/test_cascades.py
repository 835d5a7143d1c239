"""Cascades of a run's models: planned from the recipe, made, judged, packaged, published and served."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import compress
from compress.cli import main
from compress.errors import CompressError, UsageError
from compress.model_folder.cascade_info import FIRST, THEN, read_cascade
from compress.model_folder.model_info import read_info, write_info
from compress.pipeline.graph import ModelVariant
from compress.pipeline.plan import make_plan
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import read_recipe
from compress.pipeline.steps.cascade_step import CASCADE_VARIANT
from compress.pipeline.steps.package_format import FormatPackager
from compress.publish.places import open_place
from compress.publish.zoo import publish_entry
from compress.recipe.measure_schema import Target
from compress.recipe.student_schema import Part
from compress.report.report_schema import read_report
from compress.report.winner_summary import compare_winners
from compress.runtime.predictor import Placement
from compress.select.ledger import GateResult
from compress.serve.served_model import open_served
from tests.conftest import write_rows, write_tiny_recipe

LIGHT = "hidden: 16, ngrams: 3, buckets: 100, head_width: 16, epochs: 10, batch_size: 16, learning_rate: 0.03"
RECIPE = """\
task: {{kind: {kind}, data: {{train: {folder}/train.csv, test: {folder}/test.csv}}}}
teacher: minilm-l6
student: [half-depth, static, conv]
cascade: {cascade}
"""


@pytest.fixture
def plan(tmp_path):
    """Makes the plan of a recipe with this section."""
    for name in ("train.csv", "test.csv"):
        write_rows(tmp_path / name, 8)

    def make(cascade, kind="classification", more=""):
        path = tmp_path / "recipe.yaml"
        path.write_text(RECIPE.format(kind=kind, folder=tmp_path, cascade=cascade) + more)
        return make_plan(resolve(read_recipe(path)))

    return make


def test_what_int8_may_lose_decides_which_file_a_cascade_takes(plan):
    made = [plan("auto", more=f"quantize: {{methods: dynamic, max_drop: {drop}}}\n") for drop in (0.02, 0.001)]
    name = "cascade-static-then-teacher"
    assert len({each.step(name).fingerprint for each in made}) == 2
    assert (
        made[0].step("score-static-onnx-int8-cpu-b1").settings == made[1].step("score-static-onnx-int8-cpu-b1").settings
    )


def test_auto_pairs_parts_of_a_shared_student_with_the_teacher_alone(plan):
    parts = ({"kind": "part", "layers": layers, "heads": 1, "ffn": 8} for layers in (1, 2))
    recipe = plan("[]").recipe.model_copy(update={"students": tuple(Part(**each) for each in parts), "cascade": "auto"})
    assert [model.name for model in make_plan(recipe).cascades] == [
        "part-1x1x8-then-teacher",
        "part-2x1x8-then-teacher",
    ]


def test_auto_pairs_students_without_attention_with_transformers(plan):
    made = plan("auto")
    expected = [f"{first}-then-{then}" for first in ("static", "conv") for then in ("student", "teacher")]
    assert [model.name for model in made.cascades] == expected
    assert {f"{name}/cascade" for name in expected} <= {row.key for row in made.variants}


def test_without_such_a_student_the_smaller_transformer_is_first(plan):
    made = plan("auto", more="prune: {ffn: 0.5}\n")
    assert {model.name for model in made.cascades} >= {"static-then-pruned", "conv-then-teacher"}
    recipe = made.recipe.model_copy(update={"students": made.recipe.students[:1]})
    assert [model.name for model in make_plan(recipe).cascades] == ["pruned-then-teacher"]


def test_a_quantized_file_is_preferred_to_the_one_it_was_made_from(plan):
    step = plan("{first: static, then: student}", more="quantize: int8\n").step("cascade-static-then-student")
    assert step.settings["first"] == ["static/numpy-int8", "static/numpy-fp32"]
    assert step.settings["then"] == ["student/onnx-int8", "student/onnx-fp32"]
    named = plan("{first: static/onnx-fp32, then: teacher/onnx-fp32}").step(
        "cascade-static-onnx-fp32-then-teacher-onnx-fp32"
    )
    assert (named.settings["first"], named.settings["then"]) == (["static/onnx-fp32"], ["teacher/onnx-fp32"])


def test_answers_that_depend_on_the_batch_are_taken_one_by_one(plan):
    made = plan("{first: static, then: student}", more="quantize: dynamic\ntargets: [{device: cpu, batch: 8}]\n")
    needs = made.step("cascade-static-then-student").needs
    assert "score-student-onnx-int8-cpu-b1" in needs
    assert "score-static-numpy-fp32-cpu-b32" in needs


def test_a_cascade_changes_no_other_step(plan):
    without, having = plan("[]"), plan("auto")
    kept = {step.name: step.fingerprint for step in having.steps if step.name in {each.name for each in without.steps}}
    depends = {"measure", "quality", "select", "package", "report"}
    for step in without.steps:
        assert step.name in depends or kept[step.name] == step.fingerprint


@pytest.mark.parametrize(
    ("cascade", "kind", "message"),
    [
        ("{first: static, then: static}", "classification", "a cascade is of two models, and both are static"),
        ("{first: static/numpy-fp32, then: static/onnx-fp32}", "classification", "both are static"),
        ("{first: statik, then: student}", "classification", "cascade.first: no model .*did you mean static"),
        ("{first: static, then: student/onnx-int8}", "classification", "cascade.then: no file of this run"),
        ("{first: static}", "classification", "then"),
        ("[{first: static, then: student}, {first: static, then: student}]", "classification", "named twice"),
        ("often", "classification", "cascade"),
        ("auto", "regression", "there is none for regression: a number says nothing about how sure"),
        ("auto", "similarity", "there is none for similarity"),
    ],
)
def test_what_cannot_be_a_cascade_is_one_message(cascade, kind, message, plan):
    with pytest.raises(UsageError, match=message):
        plan(cascade, kind)


def test_one_model_makes_no_cascade(plan):
    recipe = plan("[]").recipe.model_copy(update={"students": (), "cascade": "auto"})
    with pytest.raises(UsageError, match="needs two models, and this recipe has only its teacher"):
        make_plan(recipe)


def test_a_class_without_a_row_of_select_is_refused_before_training(tmp_path, capsys):
    recipe = write_tiny_recipe(tmp_path)
    for name, labels in (("select", "sunny,sunny"), ("train", "sunny,rainy"), ("test", "sunny,rainy")):
        lines = [f"a text number {number},{label}" for number, label in enumerate(labels.split(",") * 30)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    command = ["run", str(recipe), "--runs", str(tmp_path / "runs"), "--set", "cascade=auto"]
    command += ["--set", f"task.data.select={tmp_path}/select.csv"]
    assert main(command) == 1
    assert "no row of select has the class 'rainy'" in capsys.readouterr().err
    assert not list((tmp_path / "runs" / ".steps").glob("finetune-*"))


@pytest.fixture(scope="module")
def cascaded(tmp_path_factory):
    """A run in which a cascade wins: everything else is ruled out."""
    folder = tmp_path_factory.mktemp("cascaded")
    recipe = write_tiny_recipe(folder)
    command = ["run", str(recipe), "--runs", str(folder / "runs"), "--format", "quiet", "--set", "prune=null"]
    command += ["--set", f"student=[{{layers: 1}}, {{kind: static, {LIGHT}}}]", "--set", "cascade=auto"]
    command += ["--set", "quantize={methods: int8, max_drop: 1.0}", "--set", "measure.robustness=[typos]"]
    assert main([*command, "--set", "export=[onnx, web]"]) == 0
    return folder


@pytest.mark.slow
def test_a_run_makes_and_times_cascades(cascaded):
    report = read_report(cascaded / "runs" / "tiny")
    rows = {row.key: row for row in report.rows}
    for then in ("student", "teacher"):
        key = f"static-then-{then}/cascade"
        result = report.result(key, "cpu")
        assert rows[key].status == "ok"
        assert result.latency.by_mean
        assert result.latency.typical() == result.latency.model.mean
        assert result.latency.quantile("p95") is not None
        assert result.test.robustness
        facts = report.cascades[key]
        assert facts.first == "static/numpy-int8"
        assert 0 < facts.share <= 1
        assert 0 <= facts.test_share <= 1
        assert facts.points[0].share <= facts.points[-1].share
    page = (cascaded / "runs" / "tiny" / "report.md").read_text(encoding="utf-8")
    assert "Thresholds of static-then-student/cascade" in page


@pytest.mark.slow
def test_its_answers_are_compared_with_those_of_another_run(cascaded, capsys):
    runs = str(cascaded / "runs")
    assert main(["report", "tiny", str(cascaded / "runs" / "tiny"), "--runs", runs, "--format", "json"]) == 0
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert target["sides"][1]["pair"]["changed"] == 0


@pytest.mark.slow
def test_its_stored_answers_are_those_of_its_folder(cascaded):
    steps = cascaded / "runs" / ".steps"
    (folder,), (scored,) = (list(steps.glob(f"{kind}-static-then-student-*")) for kind in ("cascade", "score"))
    with np.load(scored / "answers.npz") as stored:
        expected = stored["test"].argmax(axis=1)
    texts = [line.rsplit(",", 1)[0] for line in (cascaded / "test.csv").read_text().splitlines()[1:]]
    model = compress.open(folder)
    found = [model.task.labels.index(answer["label"]) for answer in model.predict(texts)]
    np.testing.assert_array_equal(found, expected)
    assert read_cascade(folder).then in ("student/onnx-int8", "student/onnx-fp32")
    assert {read_info(folder / part).variant.runtime for part in (FIRST, THEN)} == {"numpy", "onnxruntime"}


@pytest.mark.slow
def test_a_threshold_that_nobody_meets_leaves_the_other_rows(tmp_path, monkeypatch, capsys):
    missed = GateResult(outcome="missed", drop=0.5, allowed=0.01, reasons=("lost 50 points",))
    monkeypatch.setattr("compress.pipeline.steps.cascade_step.gate", lambda *_, **__: missed)
    recipe = write_tiny_recipe(tmp_path)
    command = ["run", str(recipe), "--runs", str(tmp_path / "runs"), "--set", "prune=null", "--set", "publish=null"]
    command += ["--set", f"student=[{{layers: 1}}, {{kind: static, {LIGHT}}}]", "--set", "cascade=auto"]
    assert main(command) == 0
    report = read_report(tmp_path / "runs" / "tiny")
    rows = {row.key: row for row in report.rows}
    for then in ("student", "teacher"):
        row = rows[f"static-then-{then}/cascade"]
        assert row.status == "not measured"
        assert "no threshold passes" in row.reason
        assert "it lost 50 points" in row.reason
    assert {row.status for key, row in rows.items() if "/cascade" not in key} == {"ok"}
    assert "unexpected" not in capsys.readouterr().err


@pytest.fixture(scope="module")
def winner(cascaded):
    """The folder of a cascade as it is packaged."""
    (folder,) = (cascaded / "runs" / ".steps").glob("cascade-static-then-student-*")
    copy = cascaded / "deployed"
    if not copy.exists():
        shutil.copytree(folder, copy)
        (copy / "step.json").unlink()
        recipe = read_report(cascaded / "runs" / "tiny").recipe
        write_info(copy, read_info(copy).model_copy(update={"recipe": recipe}))
    return copy


@pytest.mark.slow
def test_the_commands_take_it(winner, tmp_path, capsys):
    texts, out = tmp_path / "texts.csv", tmp_path / "out.csv"
    texts.write_text("text\nrain and storm on day 3\nsun and blue sky\n")
    assert main(["predict", str(winner), "--file", str(texts), "--to", str(out)]) == 0
    labels = [each["label"] for each in compress.open(winner).predict(["rain and storm on day 3", "sun and blue sky"])]
    assert [line.split(",")[1] for line in out.read_text().splitlines()[1:]] == labels
    assert main(["predict", str(winner), "rain and storm on day 3", ""]) == 0
    lines = tmp_path / "lines.txt"
    lines.write_text("rain and storm\nsun\n")
    assert main(["bench", str(winner), "--texts", str(lines), "--budget", "8s", "--format", "json"]) == 0
    capsys.readouterr()
    assert main(["verify", str(winner)]) == 0
    assert "models/first" in capsys.readouterr().out
    assert main(["export", str(winner), str(tmp_path / "web"), "--format", "web"]) == 2
    assert "cascade" in capsys.readouterr().err


@pytest.mark.slow
def test_it_is_published_and_pulled_with_both_models(cascaded, winner, tmp_path, capsys):
    report, key = read_report(cascaded / "runs" / "tiny"), "static-then-student/cascade"
    verdict = report.verdicts[0].model_copy(update={"winner": key, "everywhere": None})
    won = compare_winners(report.model_copy(update={"verdicts": (verdict,), "remarks": ()}))
    publish_entry({"cpu": winner}, won, open_place(str(tmp_path / "zoo")), "tiny")
    assert main(["pull", str(tmp_path / "zoo" / "tiny"), str(tmp_path / "pulled")]) == 0
    assert main(["verify", str(tmp_path / "pulled")]) == 0
    assert "pulled/models/then" in capsys.readouterr().out
    texts = ["rain and storm on day 3", "warm"]
    assert compress.open(tmp_path / "pulled").predict(texts) == compress.open(winner).predict(texts)
    rows = str(cascaded / "test.csv")
    assert main(["verify", str(tmp_path / "pulled"), "--measure", "--rows", rows]) in (0, 3)
    assert "accuracy" in capsys.readouterr().out
    card = (tmp_path / "pulled" / "README.md").read_text(encoding="utf-8")
    assert "read again by the second one (student/onnx-" in card
    assert any("answers" in remark and key in remark for remark in won.remarks)
    served = open_served("tiny", tmp_path / "pulled", Placement())
    assert "classification" in served.describe()
    (tmp_path / "pulled" / THEN / "golden.safetensors").write_bytes(b"")
    with pytest.raises(CompressError):
        open_served("tiny", tmp_path / "pulled", Placement())


def test_other_formats_are_refused_for_a_winner_of_two_models(tmp_path):
    row = ModelVariant("static-then-student", CASCADE_VARIANT, "cascade", {})
    packager = FormatPackager(SimpleNamespace(work=tmp_path), None, "web", tmp_path)
    packaged = packager.package(Target(device="cpu"), row)
    assert packaged.status == "not built"
    assert packaged.reason == "web holds one model, and static-then-student/cascade is of two"
