import pytest
from pydantic import ValidationError

from compress.errors import UsageError
from compress.pipeline.plan import make_plan
from compress.pipeline.preflight.preflight import source_problems
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import read_recipe
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import LightStudent
from compress.steps.light_step import light_training
from tests.conftest import write_rows

RECIPE = """\
task: {kind: %s, data: {train: DATA/train.csv, test: DATA/test.csv}%s}
teacher: minilm-l6
student: %s
"""
"""Of a kind of task, more settings of it, and students."""


@pytest.fixture
def read(tmp_path):
    def read(students, kind="classification", more="", rest=""):
        path = tmp_path / "recipe.yaml"
        for name in ("train.csv", "test.csv"):
            write_rows(tmp_path / name, 8)
        text = (RECIPE % (kind, more, students)).replace("DATA", str(tmp_path))
        path.write_text(text + rest)
        return read_recipe(path)

    return read


def test_a_list_names_one_transformer_and_others(read):
    recipe = resolve(read("[half-depth, static, {kind: static, hidden: 32}, conv]"))
    assert recipe.student.layers == 0.5
    assert {name: each.hidden for name, each in recipe.light_students.items()} == {
        "static": 64,
        "static-2": 32,
        "conv": 64,
    }
    assert [each["kind"] for each in recipe.model_dump()["student"][1:]] == ["static", "static", "conv"]


def test_one_student_is_written_without_a_list(read):
    assert resolve(read("static")).model_dump()["student"]["kind"] == "static"
    assert resolve(read("half-depth")).model_dump()["student"]["layers"] == 0.5
    assert read("null").students == ()


def test_two_transformers_are_refused(read):
    with pytest.raises(UsageError, match="two of the list are transformers"):
        resolve(read("[half-depth, {layers: 2}]"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{kind: static, buckets: 0}", "buckets"),
        ("{kind: static, buckets: 1000000000000}", "1000000"),
        ("{kind: static, convolutions: 2}", "static has no convolutions"),
        ("{kind: conv, factors: 128}", "should be less than hidden"),
        ("{kind: static, start: ngrams}", "has no effect without pieces"),
        ("{kind: static, buckets: 500}", "buckets has no effect without n-grams"),
        ("{kind: static, layers: 3}", "unknown key"),
        ("{kind: statik}", "static"),
        ("[static, {kind: conv, ngrms: 2}]", "did you mean ngrams"),
    ],
)
def test_bad_settings_are_one_message(read, settings, message):
    with pytest.raises(UsageError, match=message) as error:
        read(settings)
    assert "student" in str(error.value)


@pytest.mark.parametrize(
    ("kind", "more", "students", "reason"),
    [
        ("token_classification", "", "{kind: static}", "a word's tag depends on the words around it; conv reads"),
        ("question_answering", "", "{kind: conv}", "comparing each word of a document with the question"),
        ("multiple_choice", "", "{kind: static}", "reading it together with its question"),
    ],
)
def test_a_task_that_it_cannot_do_is_refused_with_the_reason(read, kind, more, students, reason):
    with pytest.raises(UsageError, match=reason):
        read(students, kind, more)


def test_it_has_nothing_to_learn_without_a_distillation(read):
    with pytest.raises(UsageError, match="distill is off"):
        read("{kind: static}", rest="distill: false\n")


@pytest.mark.parametrize(
    ("kind", "rest", "message"),
    [
        ("classification", "distill: {teachers: [no/such/folder]}\n", "distill.teachers.0"),
        ("classification", "distill: {augment: {model: no/such/folder}}\n", "distill.augment.model"),
        ("regression", "distill: {class_weights: balanced}\n", "distill.class_weights: has no effect for regression"),
    ],
)
@pytest.mark.parametrize("student", ["{kind: static}", "{kind: part, layers: 1, heads: 2, ffn: 64}"])
def test_the_distillation_is_checked_without_a_transformer_of_its_own(student, kind, rest, message, read):
    try:
        shown = "; ".join(map(str, source_problems(read(student, kind, rest=rest))))
    except UsageError as error:
        shown = error.message
    assert message in shown


@pytest.mark.parametrize(
    ("student", "rest", "message"),
    [
        (
            "{kind: static, epochs: {least: 3, most: 20}}",
            "distill: {phases: [{share: 0.5, soft_label: 1.0}, {share: 0.5, hard_label: 1.0}]}\n",
            "student: its training follows from distill: .*phases",
        ),
        ("{kind: part, layers: 1, heads: 2, ffn: 64}", "shared: {layers: 0}\n", "shared.layers: expected a number"),
        ("{kind: part, layers: 1, heads: 2, ffn: 64}", "shared: {layers: 2.5}\n", "shared.layers: expected a number"),
    ],
)
def test_settings_that_do_not_go_together_are_one_message(student, rest, message, read):
    with pytest.raises(UsageError, match=message):
        read(student, rest=rest)


def test_training_keeps_what_is_about_outputs():
    student = LightStudent(kind="static", epochs=5.0)
    settings = Distill.model_validate(
        {"soft_label": 2.0, "hidden_state": 1.0, "epochs": 2, "temperature": 2.0, "freeze": 1, "layer_map": "last"}
    )
    light = light_training(settings, student)
    assert light.loss_names() == {"soft_label"}
    assert (light.epochs, light.temperature, light.freeze, light.layer_map) == (5.0, 2.0, None, "uniform")


def test_phases_without_outputs_are_left_out():
    phases = [{"share": 0.5, "hidden_state": 1.0, "hard_label": 0.0}, {"share": 0.5, "soft_label": 1.0}]
    (phase,) = light_training(Distill.model_validate({"phases": phases}), LightStudent(kind="static")).phases
    assert (phase.share, set(phase.losses.chosen())) == (1.0, {"soft_label"})


@pytest.mark.parametrize("given", [{"hard_label": 0.0}, {"hard_label": 0.3}, {}])
def test_a_distillation_of_layers_alone_compares_outputs_all_the_same(given):
    settings = Distill.model_validate({"losses": {"hidden_state": 1.0}, **given})
    training = light_training(settings, LightStudent(kind="static"))
    assert training.loss_names() == {"soft_label"}
    assert training.hard_label == settings.hard_label


def test_scores_of_a_cross_encoder_are_left_out_with_their_loss():
    settings = Distill.model_validate({"soft_label": 1.0, "margin": 0.1, "cross_encoder": "a/folder"})
    assert light_training(settings, LightStudent(kind="static")).cross_encoder is None


def test_pruning_goes_on_from_the_transformer(recipe_file):
    recipe = read_recipe(recipe_file)
    light = recipe.model_copy(update={"students": (*recipe.students, LightStudent(kind="static"))})
    plan = make_plan(resolve(light))
    assert [model.name for model in plan.evaluated] == ["teacher", "student", "pruned", "static"]
    assert plan.evaluated_parent("pruned").name == "student"
    assert plan.evaluated_parent("static").name == "teacher"
    assert [model.name for model in plan.final] == ["pruned", "static"]
    assert {entry.model for entry in plan.variants if entry.variant.format == "numpy"} == {"static"}


def test_other_steps_keep_their_fingerprints_beside_a_light_student(recipe_file):
    recipe = resolve(read_recipe(recipe_file))
    alone = make_plan(recipe)
    beside = make_plan(recipe.model_copy(update={"students": (*recipe.students, LightStudent(kind="conv"))}))
    for name in ("data", "finetune", "distill", "cut", "recover"):
        assert alone.step(name).fingerprint == beside.step(name).fingerprint


def test_a_width_that_is_no_number_is_refused():
    with pytest.raises(ValidationError):
        LightStudent(kind="static", hidden="wide")


def test_tables_of_fewer_bits_need_such_a_student(read):
    assert read("{kind: static}", rest="quantize: rows-4bit\n").quantize.methods == ("rows-4bit",)
    with pytest.raises(UsageError, match="rows-4bit: for students without attention"):
        read("half-depth", rest="quantize: rows-4bit\n")
    training = "quantize: {methods: rows-8bit, training: true}\n"
    with pytest.raises(UsageError, match="imitates the method dynamic, and methods are rows-8bit"):
        read("{kind: static}", rest=training)
