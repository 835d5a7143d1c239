import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from compress.families import FAMILIES
from compress.models.encoder_parts import family_of, head_size, layer_shapes, layers_of, part
from compress.models.read_checkpoint import quiet
from compress.models.student.build_student import build_student
from compress.models.student.slicing import (
    HiddenMap,
    Importance,
    copy_weights,
    select_dimensions,
    take,
    top_indices,
    weight_importance,
)
from compress.recipe.student_schema import Student

SLICED = [name for name, family in FAMILIES.items() if family.resizable]
HEADS = ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "Model"]


def answers(model, batch):
    model.train(False)
    with torch.no_grad():
        return model(**batch(model))[0]


def zero(linear, rows=(), columns=()):
    with torch.no_grad():
        linear.weight[list(rows)] = 0
        linear.weight[:, list(columns)] = 0
        if linear.bias is not None:
            linear.bias[list(rows)] = 0


def kill_neurons(model, dead):
    family = family_of(model)
    for layer in dict.fromkeys(layers_of(model)):
        zero(part(layer, family.ffn_out), columns=dead)


def kill_heads(model, dead):
    family, size = family_of(model), head_size(model)
    channels = [head * size + offset for head in dead for offset in range(size)]
    for layer in dict.fromkeys(layers_of(model)):
        zero(part(layer, family.attention_output), columns=channels)


def kill_hidden(model, dead):
    """Make dimensions of the hidden states zero throughout, and what the others add up to as well.

    A norm subtracts the mean over all dimensions, which is another one once some are gone, unless it is zero.
    """
    hidden = model.config.hidden_size
    live = [index for index in range(hidden) if index not in dead]
    with torch.no_grad():
        for module in model.base_model.modules():
            if isinstance(module, nn.LayerNorm) and module.weight.numel() == hidden:
                module.weight[dead] = 0
                module.weight[live] = 1  # one gain for all, so that norms keep the sum at zero
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, nn.Embedding) and module.embedding_dim == hidden:
                center(module.weight.T, dead, live)
            elif isinstance(module, nn.Linear) and module.out_features == hidden and writes(model, module):
                center(module.weight, dead, live)
                if module.bias is not None:
                    center(module.bias[:, None], dead, live)


def writes(model, linear):
    """Whether a linear part adds to the hidden states, as queries, keys and values do not."""
    family = family_of(model)
    paths = (family.attention_output, family.ffn_out)
    names = ("embeddings_project", "embedding_hidden_mapping_in")
    outside = [module for name, module in model.named_modules() if name.endswith(names)]
    return any(
        linear is each for each in [*outside, *(part(layer, path) for layer in layers_of(model) for path in paths)]
    )


def center(rows, dead, live):
    rows[dead] = 0
    rows[live] -= rows[live].mean(dim=0, keepdim=True)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", SLICED)
@pytest.mark.parametrize("start", ["slice", "svd"])
def test_slicing_nothing_gives_the_teacher(name, head, start, tiny_model):
    teacher = tiny_model(name, head=head)
    student = build_student(teacher, Student(hidden=32, heads=4, ffn=64, start=start))
    ours, theirs = student.state_dict(), teacher.state_dict()
    assert type(student) is type(teacher)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("name", SLICED)
def test_slicing_unused_neurons_changes_no_output(name, tiny_model, batch):
    teacher = tiny_model(name)
    kill_neurons(teacher, range(5, 64, 2))
    student = build_student(teacher, Student(ffn=34, start="slice"))
    assert layer_shapes(student) == [(4, 34)] * 2
    torch.testing.assert_close(answers(student, batch), answers(teacher, batch), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in SLICED if FAMILIES[name].prunable])
def test_slicing_unused_heads_changes_no_output(name, tiny_model, batch):
    teacher = tiny_model(name)
    kill_heads(teacher, [0, 2])
    student = build_student(teacher, Student(heads=2, start="slice"))
    assert (layer_shapes(student), student.config.model_type) == ([(2, 64)] * 2, f"compress-{name}")
    torch.testing.assert_close(answers(student, batch), answers(teacher, batch), atol=1e-5, rtol=1e-5)


# The heads of a ModernBERT have a norm over features of their own, whose mean no cut leaves alone.
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", [name for name in SLICED if name != "modernbert"])
@pytest.mark.parametrize("start", ["slice", "svd"])
def test_slicing_unused_dimensions_changes_no_output(name, head, start, tiny_model, batch):
    check_dead_dimensions(name, head, start, tiny_model, batch)


@pytest.mark.parametrize("start", ["slice", "svd"])
def test_slicing_unused_modernbert_dimensions_changes_no_hidden_state(start, tiny_model, batch):
    check_dead_dimensions("modernbert", "Model", start, tiny_model, batch)


def check_dead_dimensions(name, head, start, tiny_model, batch):
    teacher = tiny_model(name, head=head)
    dead = [0, 3, 7, 8, 9, 20, 30, 31]
    kill_hidden(teacher, dead)
    kill_heads(teacher, [1])
    if head == "ForSequenceClassification":
        kill_features(teacher, dead)
    student = build_student(teacher, Student(hidden=24, heads=3, ffn=64, start=start))
    assert student.config.model_type == name
    wanted = answers(teacher, batch)
    if head == "Model":
        assert wanted[..., dead].abs().max() == 0
        wanted = wanted[..., [index for index in range(32) if index not in dead]]
    torch.testing.assert_close(answers(student, batch), wanted, atol=2e-4, rtol=1e-3)


def kill_features(model, dead):
    """Have the last layer of a head look at no feature of these."""
    (last,) = [each for each in model.modules() if isinstance(each, nn.Linear) and each.out_features == 2]
    zero(last, columns=dead)


def test_most_important_parts_are_kept_in_order(tiny_model):
    teacher = tiny_model("bert")
    importance = weight_importance(teacher)
    student = build_student(teacher, Student(layers=(1,), hidden=16, heads=3, ffn=40), importance=importance)
    kept = sorted(sorted(range(32), key=lambda index: -importance.hidden[index])[:16])
    heads = sorted(sorted(range(4), key=lambda index: -importance.heads[1][index])[:3])
    neurons = sorted(sorted(range(64), key=lambda index: -importance.neurons[1][index])[:40])
    channels = [head * 8 + offset for head in heads for offset in range(8)]
    ours, theirs = layers_of(student)[0], layers_of(teacher)[1]
    for path, rows, columns in (
        ("attention.self.query", channels, kept),
        ("attention.output.dense", kept, channels),
        ("intermediate.dense", neurons, kept),
        ("output.dense", kept, neurons),
    ):
        wide, narrow = part(theirs, path), part(ours, path)
        assert torch.equal(narrow.weight, wide.weight[rows][:, columns])
        assert torch.equal(narrow.bias, wide.bias[rows])
    words = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(student.state_dict()[words], teacher.state_dict()[words][:, kept])


@pytest.mark.parametrize("name", [name for name in SLICED if FAMILIES[name].prunable])
def test_head_size_does_not_follow_the_hidden_size(name, tiny_model, batch, tmp_path):
    student = build_student(tiny_model(name), Student(hidden=21, heads=4))
    assert (head_size(student), student.config.hidden_size) == (8, 21)
    assert student.config.model_type == f"compress-{name}"
    with quiet():
        student.save_pretrained(tmp_path)
        again = type(student).from_pretrained(tmp_path)
    assert torch.equal(answers(again, batch), answers(student, batch))


def test_take_selects_from_every_block():
    tensor = torch.arange(12.0)[:, None]
    assert take(torch.tensor([1, 3]), 4, tensor, 0).flatten().tolist() == [1, 3, 5, 7, 9, 11]
    assert top_indices(torch.tensor([1.0, 3.0, 3.0, 2.0, 3.0]), 3).tolist() == [1, 2, 4]


def test_norm_gain_corrects_for_the_kept_share():
    states = torch.randn(100, 32, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 2, 32)
    importance = Importance(states.abs().mean(dim=0), [], [], states.T @ states)
    stream = select_dimensions(importance, 8)
    squares = states.square().sum(dim=0)
    wanted = (squares[stream.kept].sum() / squares.sum() * 32 / 8).sqrt()
    assert stream.gain == pytest.approx(wanted.item())
    assert stream.gain > 1
    assert select_dimensions(importance, 32).gain == pytest.approx(1.0)


def test_embedding_student_stays_in_its_teachers_space(tiny_model, batch):
    teacher = tiny_model("bert", head="ForSentenceEmbedding")
    dead = [1, 2, 5, 6, 16, 17, 28, 29]
    kill_hidden(teacher, dead)
    kill_heads(teacher, [3])
    student = build_student(teacher, Student(hidden=24, ffn=64))
    torch.testing.assert_close(answers(student, batch), answers(teacher, batch), atol=1e-4, rtol=1e-3)


def as_on_a_gpu(model, mode):
    """Its parameters have a device and a shape, and no numbers: operations that mix devices fail."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            fake = FakeTensor(mode, parameter.detach().to("meta"), torch.device("cuda:0"))
            setattr(module, name, nn.Parameter(fake))


@pytest.mark.parametrize("head", HEADS)
def test_model_on_a_gpu_is_sliced(head, tiny_model):
    teacher = tiny_model("bert", head=head)
    student = tiny_model("bert", head=head, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, head_size=8)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    as_on_a_gpu(teacher, mode)
    with mode:
        result = weight_importance(teacher)
        assert {each.device.type for each in (result.hidden, *result.heads, *result.neurons, result.moments)} == {"cpu"}
        for basis in (None, torch.empty(32, 16)):
            copy_weights(teacher, student, [1], result, HiddenMap(32, torch.arange(16), 1.0, basis))
