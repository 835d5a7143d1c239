from pathlib import Path

import pytest

from compress.model_shapes import plan_student_shape, shape_of_folder
from compress.pipeline.commands.smoke import smoke_recipe
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import Student


@pytest.fixture
def small(tmp_path):
    def made(student, distill=None, teacher="bert-base"):
        task = {"name": "films", "kind": "classification", "data": {"train": "a.csv", "test": "b.csv"}}
        raw = {"name": "films", "task": task, "teacher": teacher, "student": student, "distill": distill or {}}
        raw["quantize"] = {"training": True}
        return smoke_recipe(Recipe.model_validate(raw), tmp_path, ())

    return made


@pytest.mark.parametrize(
    ("student", "expected"),
    [
        ({"layers": 3}, Student(layers=1)),
        ({"layers": 3, "choose": "ends"}, Student(layers=1, choose="ends")),
        ({"layers": 3, "hidden": 192, "start": "svd"}, Student(layers=1, hidden=24, start="svd")),
        ({"layers": 3, "hidden": 192, "heads": 6, "ffn": 768}, Student(layers=1, hidden=24, heads=3, ffn=48)),
        ({"layers": 3, "heads": 6, "start": "random"}, Student(layers=1, heads=2, start="random")),
        ({"layers": [0, 2], "factors": 128}, Student(layers=1, factors=8)),
        ({"source": "owner/name", "layers": 2}, Student(layers=1)),
    ],
)
def test_student_is_initialised_as_in_the_recipe(small, student, expected):
    result = small(student)
    assert result.student == expected
    form = plan_student_shape(shape_of_folder(Path(result.teacher.source)), result.student)
    assert form.start == student.get("start", "slice" if "hidden" in student else "teacher")


def test_narrow_student_can_be_sliced_in_every_family(small, tmp_path):
    from compress.models.tiny import write_tiny_model

    for family in ("bert", "albert", "electra", "modernbert"):
        write_tiny_model(tmp_path / family, family)
        form = plan_student_shape(shape_of_folder(tmp_path / family), small({"layers": 0.5, "hidden": 192}).student)
        assert form.start == "slice", family


def test_every_phase_gets_an_update(small):
    phases = [
        {"share": 0.9, "relation": {"layer": 9, "heads": 48}, "soft_label": {"form": "mse"}},
        {"share": 0.05, "hidden_state": 1.0},
        {"share": 0.05, "soft_label": 1.0},
    ]
    result = small({"layers": 3}, {"phases": phases, "layer_map": [[0, 5], [1, 11]]}).distill
    assert result.max_steps == 3
    assert [phase.share for phase in result.phases] == [pytest.approx(1 / 3)] * 3
    relation = result.phases[0].losses.relation
    assert (relation.layer, relation.heads) == (None, None)
    assert result.phases[0].losses.soft_label.form == "mse"
    assert result.layer_map == ((0, 1),)


def test_every_process_gets_two_texts(small, monkeypatch):
    assert small({"layers": 3}).distill.batch_size == 8
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "0")
    assert small({"layers": 3}).distill.batch_size == 16


def test_training_for_int8_is_short_too(small):
    assert small({"layers": 3}).quantize.training.max_steps == 2


def test_fewer_labelled_rows_than_rows(tmp_path):
    data = {"train": "a.csv", "test": "b.csv", "labelled": 600}
    raw = {"name": "films", "task": {"name": "films", "kind": "classification", "data": data}, "teacher": "bert-base"}
    small = smoke_recipe(Recipe.model_validate(raw), tmp_path, ()).task.data
    assert 0 < small.labelled < small.limit


def test_a_recipe_without_students_keeps_its_distillation(tmp_path):
    task = {"name": "films", "kind": "classification", "data": {"train": "a.csv", "test": "b.csv"}}
    raw = {"name": "films", "task": task, "teacher": "bert-base", "prune": {"heads": 0.5}}
    assert smoke_recipe(Recipe.model_validate(raw), tmp_path, ()).distill == Recipe.model_validate(raw).distill
