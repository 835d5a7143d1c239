"""The shared student and its parts in a recipe: names, what is refused before a run, a run from end to end."""

from pathlib import Path

import pytest

from compress.cli import main
from compress.errors import UsageError
from compress.model_sources import identity
from compress.models.tiny import write_tiny_model
from compress.pipeline.plan import make_plan
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import read_recipe
from compress.pipeline.stages import stage_of
from compress.report.report_schema import read_report

PARTS = "student=[{kind: part, layers: 2, heads: 3, ffn: 32}, {kind: part, layers: 1, heads: 1, ffn: 8}]"
ALONE = ["prune=null", "publish=null", PARTS]


def planned(recipe_file: Path, *overrides: str):
    return make_plan(resolve(read_recipe(recipe_file, [*ALONE, *overrides])))


def test_a_part_is_called_by_its_shape_and_made_of_the_shared_student(recipe_file):
    plan = planned(recipe_file)
    assert [model.name for model in plan.final] == ["part-2x3x32", "part-1x1x8"]
    assert plan.model("part-1x1x8").parent == "shared"
    assert "shared/onnx-fp32" not in {row.key for row in plan.variants}


def test_a_run_shows_the_shared_training_and_that_of_parts_as_two_stages(recipe_file):
    plan = planned(recipe_file)
    titles = [stage_of(plan.step(name)).title for name in ("shared", "part-1x1x8")]
    assert titles == [
        "distilling a shared student, all its parts at once",
        "distilling chosen parts of the shared student",
    ]


def test_a_student_that_is_only_built_is_not_called_distilled(recipe_file):
    plan = planned(recipe_file, "shared={layers: 1}")
    assert stage_of(plan.step("build-shared")).title == "building the student"


def test_other_parts_train_the_same_shared_student(recipe_file):
    one, other = planned(recipe_file), planned(recipe_file, "student={kind: part, layers: 1, heads: 1, ffn: 8}")
    for name in ("shared", "part-1x1x8"):
        assert one.step(name).fingerprint == other.step(name).fingerprint
    assert one.step("shared").fingerprint != planned(recipe_file, "shared={epochs: 7}").step("shared").fingerprint


def test_without_changes_it_begins_as_the_teacher(recipe_file):
    plan = planned(recipe_file)
    assert plan.step("shared").needs == ("data", "finetune")
    assert plan.model("shared").parent == "teacher"
    assert "shared-vocabulary" in planned(recipe_file, "shared={vocabulary: seen}").step("shared").needs


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["student=[{kind: part, layers: 1, heads: 1, ffn: 8}, {kind: part, layers: 1, heads: 1, ffn: 8}]"],
            "listed twice",
        ),
        (["distill=false"], "distill is off"),
        (["prune={heads: 0.5}"], "parts of the shared student are not pruned further"),
        (["student={kind: part, layers: 1, heads: 1}"], "ffn"),
        (["student={kind: part, layers: 0, heads: 1, ffn: 8}"], "layers"),
        (["student={kind: part, layers: 1, heads: 1, ffn: 8, factors: 0}"], "factors"),
        (["student={kind: part, layers: 1, heads: 1, ffn: 8, hidden: 8}"], "hidden"),
        (["shared={epoch: 3}"], "did you mean epochs"),
        (["shared={between: 0}"], "between"),
        (["shared={pooling: mean}"], "pooling is of a checkpoint, and there is no source"),
        (["shared={revision: main}"], "revision is of a checkpoint, and there is no source"),
        (
            ["shared={temperature: 2}", "distill={soft_label: {weight: 1, temperature: 4}}"],
            "shared.temperature: has no effect: distill.soft_label has a temperature of its own",
        ),
        (
            ["shared={hard_label: 0.1}", "distill={phases: [{share: 1.0, soft_label: 1.0}]}"],
            "no effect beside distill.phases",
        ),
    ],
)
def test_bad_settings_are_one_message(overrides, message, recipe_file):
    with pytest.raises(UsageError, match=message):
        read_recipe(recipe_file, [*ALONE, *overrides])


SMALLER = (
    "student=[{kind: part, layers: 1, heads: 1, ffn: 8, factors: 8, vocabulary: seen},"
    " {kind: part, layers: 2, heads: 1, ffn: 8, vocabulary: seen}]"
)


def test_parts_with_smaller_word_vectors_share_the_training_and_the_pieces(recipe_file):
    plan, plain = planned(recipe_file, SMALLER), planned(recipe_file)
    assert plan.step("shared").fingerprint == plain.step("shared").fingerprint
    assert [model.name for model in plan.final] == ["part-1x1x8-8factors-seen", "part-2x1x8-seen"]
    assert {plan.model(model.name).parent for model in plan.final} == {"shared-seen"}
    assert [step.name for step in plan.steps].count("shared-seen") == 1
    kept = planned(recipe_file, "student={kind: part, layers: 1, heads: 1, ffn: 8, vocabulary: {keep: 50}}")
    assert [model.name for model in kept.final] == ["part-1x1x8-50pieces"]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("factors: 64", "factors: 64 numbers per token are more than"),
        ("vocabulary: {keep: 90000}", "90,000 pieces cannot be kept"),
        ("vocabulary: {keep: 60}", "60 pieces cannot be kept: shared.vocabulary leaves 50"),
    ],
)
def test_word_vectors_that_cannot_be_are_refused_before_a_run(part, message, recipe_file, capsys):
    student = f"student={{kind: part, layers: 1, heads: 1, ffn: 8, {part}}}"
    options = [f"--set={each}" for each in ("prune=null", student, "shared={vocabulary: {keep: 50}}")]
    assert main(["run", str(recipe_file), *options, "--dry-run"]) != 0
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_part_larger_than_the_whole_is_refused_before_a_run(recipe_file, capsys):
    wrong = "student={kind: part, layers: 3, heads: 1, ffn: 8}"
    assert main(["run", str(recipe_file), "--set", "prune=null", "--set", wrong, "--dry-run"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "part-3x1x8: a part of 3 layers, 1 head and 8 neurons is larger than the shared student" in message


@pytest.mark.parametrize(
    ("distill", "message"),
    [
        ("{freeze: 2}", "part-1x1x8: freeze: 2 exceeds the model's number of layers (1)"),
        ("{layer_map: [[1, 1]], hidden_state: 1.0}", "part-1x1x8: layer_map: "),
        ("{relation: {weight: 1.0, heads: 3}}", "part-2x3x32: relation.heads: 3 does not divide query widths 24"),
    ],
)
def test_a_distillation_that_does_not_fit_a_part_is_refused_before_a_run(distill, message, recipe_file, capsys):
    options = [f"--set={each}" for each in ("prune=null", PARTS, f"distill={distill}")]
    assert main(["run", str(recipe_file), *options, "--dry-run"]) != 0
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_family_whose_heads_cannot_be_taken_apart_is_refused(recipe_file, tmp_path, capsys):
    write_tiny_model(tmp_path / "albert", "albert")
    options = ["--set", "prune=null", "--set", PARTS, "--set", f"teacher={tmp_path / 'albert'}", "--dry-run"]
    assert main(["run", str(recipe_file), *options]) != 0
    assert "albert" in capsys.readouterr().err


def test_it_may_begin_as_another_checkpoint(recipe_file, tmp_path):
    write_tiny_model(tmp_path / "other", "bert")
    other = planned(recipe_file, f"shared={{source: {tmp_path / 'other'}, vocabulary: {{keep: 50}}}}")
    assert [step for step in other.step("shared").needs if step != "data"] == ["finetune", "shared-vocabulary"]
    built = [step for step in other.steps if step.name == "build-shared"]
    assert built[0].settings["student"]["source"] == identity(str(tmp_path / "other"), None)
    card = resolve(read_recipe(recipe_file, [*ALONE, "shared={source: minilm-6x384, epochs: 2}"])).shared
    assert (card.source, card.revision, card.epochs) == ("nreimers/MiniLM-L6-H384-uncased", "main", 2)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("half-depth", "shared.source: the card half-depth names no checkpoint"),
        ("static", "shared.source: the card static names no checkpoint"),
        ("minilm-l66", "minilm-l66"),
        ("{folder}/albert", "albert cannot be pruned"),
        ("{folder}/bert", "another vocabulary"),
        ("{folder}/nowhere", "there is no folder"),
    ],
)
def test_a_checkpoint_that_it_cannot_begin_as_is_refused_before_a_run(source, message, recipe_file, tmp_path, capsys):
    for family in ("albert", "bert"):
        write_tiny_model(tmp_path / family, family)
    words = tmp_path / "bert" / "tokenizer.json"
    words.write_text(words.read_text().replace('"##~"', '"##~~"'))
    options = [*ALONE, f"shared.source={source.format(folder=tmp_path)}"]
    command = ["run", str(recipe_file), "--dry-run", *(f"--set={each}" for each in options)]
    assert main(command) != 0
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_run_makes_parts_beside_other_students(recipe_file, tmp_path, capsys):
    light = "{kind: static, hidden: 16, head_width: 16, epochs: 4, batch_size: 16, learning_rate: 0.03}"
    small = "{kind: part, layers: 1, heads: 2, ffn: 8, factors: 8, vocabulary: seen}"
    students = PARTS.replace("student=[", f"student=[{{layers: 1}}, {light}, {small}, ")
    runs = tmp_path / "runs"
    command = ["run", str(recipe_file), "--runs", str(runs), "--format", "quiet", "--set", students]
    command += ["--set", "publish=null", "--set", "shared={epochs: 2, batch_size: 16}"]
    command += ["--set", "quantize=null"]
    assert main(command) == 0
    report = read_report(runs / "tiny")
    names = {"part-2x3x32", "part-1x1x8", "part-1x2x8-8factors-seen"}
    assert {row.model for row in report.rows} == {"teacher", "student", "pruned", "static", *names}
    assert "failed" not in {row.status for row in report.rows}
    start = "1 layer of {} and 8 neurons of the shared student"
    assert report.makings["part-1x1x8"].start == start.format("1 head")
    own = "; word vectors in 8 factors; a vocabulary of its own"
    assert report.makings["part-1x2x8-8factors-seen"].start == start.format("2 heads") + own
    assert report.vocabularies.keys() == {"part-1x2x8-8factors-seen"}
    steps = {path.name for path in (runs / ".steps").iterdir()}
    assert main(command) == 0
    assert {path.name for path in (runs / ".steps").iterdir()} == steps
    assert main(["run", str(recipe_file), "--runs", str(runs), "--format", "quiet", "--smoke", "--set", students]) == 0
    capsys.readouterr()
