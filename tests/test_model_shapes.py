import pytest

from compress.errors import ModelError
from compress.families import FAMILIES
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import (
    plan_student_shape,
    pruned_shape,
    shape_of_config,
    shape_of_folder,
    student_shape,
)
from compress.models.encoder_parts import shape_of
from compress.models.nonuniform_models import reshape_config
from compress.models.student.build_student import build_student
from compress.recipe.prune_schema import Prune
from compress.recipe.student_schema import Student

SHAPE = ShapeInfo(
    family="bert",
    hidden=384,
    heads=(12,) * 6,
    ffn=(1536,) * 6,
    vocabulary=30522,
    parameters=22_700_000,
    embedding_parameters=11_900_000,
    head_size=32,
)
ESTIMATED = {"parameters": 0, "embedding_parameters": 0}


@pytest.mark.parametrize("name", FAMILIES)
def test_shape_of_config_matches_the_model(name, tiny_model):
    model = tiny_model(name)
    planned, real = shape_of_config(model.config.to_dict()), shape_of(model)
    assert planned.model_copy(update=ESTIMATED) == real.model_copy(update=ESTIMATED)
    if name != "mobilebert":  # its bottlenecks are not part of a shape
        assert planned.parameters == pytest.approx(real.parameters, rel=0.15)


def test_shape_of_nonuniform_config_lists_its_layers(tiny_model):
    config = reshape_config(tiny_model("bert").config, 32, [(3, 48), (1, 64)], 8, 5)
    shape = shape_of_config(config.to_dict())
    assert (shape.heads, shape.ffn, shape.head_size, shape.embedding_size) == ((3, 1), (48, 64), 8, 5)


@pytest.mark.parametrize(
    "student",
    [
        Student(layers=0.5),
        Student(layers=(0, 3)),
        Student(layers=1, hidden=16, heads=2),
        Student(layers=2, ffn=32),
        Student(hidden=64),
        Student(hidden=24),
        Student(hidden=16, start="random", heads=4),
        Student(factors=5),
    ],
)
def test_planned_student_is_the_one_that_is_built(student, tiny_model):
    teacher = tiny_model("bert", num_hidden_layers=4)
    planned, real = student_shape(shape_of(teacher), student), shape_of(build_student(teacher, student))
    assert planned.model_copy(update=ESTIMATED) == real.model_copy(update=ESTIMATED)
    assert planned.parameters == pytest.approx(real.parameters, rel=0.15)


def test_student_has_no_more_heads_than_a_pruned_teacher():
    teacher = SHAPE.model_copy(update={"heads": (4, 2, 3, 4, 1, 4)})
    shape = plan_student_shape(teacher, Student(layers=3, hidden=256))
    assert [heads for heads, _ in shape.layer_shapes] == [2, 4, 4]
    assert student_shape(teacher, Student(layers=3, hidden=256)).heads == (2, 4, 4)


def test_checkpoint_without_settings_keeps_its_shape():
    assert student_shape(SHAPE, Student(source="somewhere")) is SHAPE


def test_pruned_shape_keeps_its_ratios():
    pruned = pruned_shape(SHAPE, Prune(heads=0.25, ffn=0.5))
    assert (pruned.heads, pruned.ffn) == ((9,) * 6, (768,) * 6)


@pytest.mark.parametrize("change", [{"hidden_size": None}, {"num_attention_heads": 0}, {"vocab_size": "many"}])
def test_config_without_a_shape_is_refused(change, tiny_model):
    with pytest.raises(ModelError, match="config of this bert does not give its shape"):
        shape_of_config(tiny_model("bert").config.to_dict() | change)


def test_folder_without_a_readable_config_has_no_shape(tmp_path):
    assert shape_of_folder(None) is None
    assert shape_of_folder(tmp_path) is None
    (tmp_path / "config.json").write_text("[1, 2")
    assert shape_of_folder(tmp_path) is None
