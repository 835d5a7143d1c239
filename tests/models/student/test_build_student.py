import pytest
import torch

from compress.errors import ModelError
from compress.families import FAMILIES
from compress.model_shapes import choose_layers
from compress.models.encoder_parts import layer_shapes, layers_of, shape_of
from compress.models.nonuniform_models import match_config_to_weights
from compress.models.student.build_student import build_student, student_shape_of
from compress.recipe.student_schema import Student


@pytest.mark.parametrize(
    ("layers", "depth", "expected"),
    [
        (3.0, 6, [1, 3, 5]),
        (0.5, 6, [1, 3, 5]),
        (0.5, 12, [1, 3, 5, 7, 9, 11]),
        (5.0, 12, [2, 4, 7, 9, 11]),
        (1.0, 6, [5]),
        (0.01, 6, [5]),
        ((0, 5), 6, [0, 5]),
        (None, 3, [0, 1, 2]),
    ],
)
def test_layers_are_spread_evenly_and_end_with_the_last(layers, depth, expected):
    assert choose_layers(layers, depth) == expected


@pytest.mark.parametrize(
    ("layers", "depth", "choose", "expected"),
    [
        (3.0, 12, "spread", [3, 7, 11]),
        (3.0, 12, "first", [0, 1, 2]),
        (3.0, 12, "last", [9, 10, 11]),
        (3.0, 12, "ends", [0, 6, 11]),
        (6.0, 12, "ends", [0, 2, 4, 7, 9, 11]),
        (0.5, 4, "ends", [0, 3]),
        (1.0, 6, "ends", [5]),
        (6.0, 6, "ends", [0, 1, 2, 3, 4, 5]),
        (6.0, 6, "last", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_number_of_layers_is_chosen_by_rule(layers, depth, choose, expected):
    assert choose_layers(layers, depth, choose) == expected


@pytest.mark.parametrize("spec", [{"layers": (0, 1), "choose": "first"}, {"hidden": 16, "choose": "last"}])
def test_rule_needs_a_number_of_layers(spec):
    with pytest.raises(ValueError, match="needs a number or a share of layers"):
        Student(**spec)


def test_rule_selects_the_students_layers(tiny_model):
    teacher = tiny_model("bert", num_hidden_layers=3)
    student = build_student(teacher, Student(layers=1, choose="first"))
    theirs = layers_of(teacher)[0].state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in layers_of(student)[0].state_dict().items())


@pytest.mark.parametrize("layers", [7.0, (0, 6), (1, 1)])
def test_impossible_layers_are_refused(layers):
    with pytest.raises(ModelError, match="layers"):
        choose_layers(layers, 6)


@pytest.mark.parametrize("name", FAMILIES)
def test_student_copies_its_teachers_layers(name, tiny_model):
    teacher = tiny_model(name, num_hidden_layers=3) if name != "distilbert" else tiny_model(name, n_layers=3)
    student = build_student(teacher, Student(layers=(0, 2)))
    assert type(student) is type(teacher)
    assert shape_of(student).layers == 2
    for layer, index in zip(layers_of(student), (0, 2), strict=True):
        theirs = layers_of(teacher)[index].state_dict()
        assert all(torch.equal(tensor, theirs[name]) for name, tensor in layer.state_dict().items())
    ours = {key: value for key, value in student.state_dict().items() if "layer" not in key}
    assert ours
    assert all(torch.equal(value, teacher.state_dict()[key]) for key, value in ours.items())
    assert student.config.id2label == teacher.config.id2label


@pytest.mark.parametrize("name", FAMILIES)
def test_full_student_has_the_teachers_outputs(name, tiny_model, batch):
    teacher = tiny_model(name)
    student = build_student(teacher, Student(layers=2))
    student.train(False)
    assert torch.equal(student(**batch(student)).logits, teacher(**batch(teacher)).logits)


def test_modernbert_student_keeps_its_attention_types(tiny_model):
    teacher = tiny_model("modernbert", num_hidden_layers=4)
    student = build_student(teacher, Student(layers=2))
    kinds = teacher.config.layer_types
    assert student.config.layer_types == [kinds[1], kinds[3]]


def test_other_widths_are_initialised_from_the_seed(tiny_model):
    teacher = tiny_model("bert")
    spec = Student(layers=1, hidden=24, heads=3, ffn=40, start="random")
    first, again, other = (build_student(teacher, spec, seed=seed) for seed in (1, 1, 2))
    assert (layer_shapes(first), first.config.hidden_size) == ([(3, 40)], 24)
    weight = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(first.state_dict()[weight], again.state_dict()[weight])
    assert not torch.equal(first.state_dict()[weight], other.state_dict()[weight])


def test_missing_widths_follow_the_teacher(tiny_model):
    student = build_student(tiny_model("bert"), Student(layers=1, hidden=16))
    assert layer_shapes(student) == [(2, 32)]


def test_random_start_copies_nothing(tiny_model):
    teacher = tiny_model("bert")
    student = build_student(teacher, Student(layers=1, start="random"))
    weight = "bert.embeddings.word_embeddings.weight"
    assert not torch.equal(student.state_dict()[weight], teacher.state_dict()[weight])


def test_building_keeps_the_random_state(tiny_model):
    teacher = tiny_model("bert")
    before = torch.get_rng_state()
    build_student(teacher, Student(layers=1, hidden=16))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("bert", {"layers": 3}, "3 layers cannot be taken from 2"),
        ("bert", {"layers": 1, "hidden": 30, "heads": 4, "start": "random"}, "30 cannot be split evenly into 4 heads"),
        ("bert", {"layers": 1, "ffn": 32, "start": "teacher"}, "start: slice takes the most important part"),
        ("bert", {"hidden": 48, "start": "slice"}, "cannot be made from this bert of hidden 32.*would be wider"),
        ("bert", {"ffn": 65, "start": "svd"}, "cannot be made from this bert of hidden 32.*would be wider"),
        ("mobilebert", {"layers": 1, "ffn": 32}, "only its number of layers"),
        ("mobilebert", {"hidden": 16, "start": "slice"}, "only its number of layers"),
        ("albert", {"heads": 3, "start": "slice"}, "from this albert of .*: its heads of 8 must make up"),
        ("modernbert", {"hidden": 20, "start": "slice"}, "from this modernbert of .*: its heads of 8 must make up"),
        ("electra", {"hidden": 16, "start": "slice"}, "from this electra of .*: its word vectors have 16 dimensions"),
        ("electra", {"factors": 8}, "word vectors of electra already have a size of their own, 16"),
        ("albert", {"factors": 8}, "word vectors of albert already have a size of their own, 16"),
        ("mobilebert", {"factors": 8}, "word vectors of mobilebert already have a size of their own, 32"),
        ("bert", {"factors": 33}, "33 numbers per token are more than the student's hidden size, 32"),
        ("bert", {"hidden": 16, "factors": 17}, "17 numbers per token are more than the student's hidden size, 16"),
    ],
)
def test_impossible_students_are_refused(name, spec, message, tiny_model):
    with pytest.raises(ModelError, match=message):
        build_student(tiny_model(name), Student(**spec))


def test_pruned_teacher_gives_nonuniform_students(tiny_model, cut):
    teacher = match_config_to_weights(cut(tiny_model("bert")))
    assert layer_shapes(build_student(teacher, Student(layers=(1,)))) == [(4, 48)]
    assert layer_shapes(build_student(teacher, Student(ffn=56))) == [(3, 56), (4, 48)]
    assert layer_shapes(build_student(teacher, Student(hidden=16, start="random"))) == [(2, 32), (2, 32)]


@pytest.mark.parametrize(("name", "spec"), [("albert", {"heads": 2}), ("bert", {"hidden": 48}), ("bert", {"ffn": 80})])
def test_unsliceable_student_is_randomly_initialised_by_default(name, spec, tiny_model):
    teacher = tiny_model(name)
    assert student_shape_of(teacher.config, Student(**spec)).start == "random"
    first, other = (build_student(teacher, Student(**spec), seed=seed).state_dict() for seed in (0, 1))
    assert not all(torch.equal(first[key], other[key]) for key in first)


def test_narrower_student_is_sliced_by_default(tiny_model):
    config = tiny_model("bert").config
    starts = [student_shape_of(config, Student(**spec)).start for spec in ({"layers": 1}, {"hidden": 16}, {"ffn": 8})]
    assert starts == ["teacher", "slice", "slice"]


def test_modernbert_layers_cannot_replace_the_first(tiny_model):
    teacher = tiny_model("modernbert")
    with pytest.raises(ModelError, match="it can only be the student's first"):
        build_student(teacher, Student(layers=(1, 0)))


def test_checkpoint_starts_the_student(tiny_folder, tiny_model, tiny_task, cut):
    folder = tiny_folder(cut(tiny_model("bert")))
    teacher = tiny_model("bert", hidden_size=64)
    student = build_student(teacher, Student(source=str(folder)), tiny_task)
    assert layer_shapes(student) == [(3, 64), (4, 48)]
    shorter = build_student(teacher, Student(source=str(folder), layers=1), tiny_task)
    assert layer_shapes(shorter) == [(4, 48)]
