import pytest
import torch

from compress.console import Console
from compress.families import FAMILIES
from compress.models import load
from compress.models.encoder_parts import family_of, layer_shapes, layers_of, part
from compress.models.student.slicing import select_dimensions
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.train.core.training_data import fast_tokenizer
from compress.train.distill import distill
from compress.train.distillation import activation_importance as importances
from compress.train.distillation.activation_importance import importance_for_student, measure_activations

IDS = torch.tensor([[2, 5, 9, 14, 8, 3], [2, 10, 8, 3, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
BATCH = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": torch.zeros_like(IDS)}


def recorded(model, path, layer):
    """What goes into a part of a layer, for every real piece (pieces, width)."""
    seen = []
    hook = part(layers_of(model)[layer], path).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model(**{name: BATCH[name] for name in family_of(model).inputs})
    hook.remove()
    return torch.cat([states[row, : int(MASK[row].sum())] for states in seen for row in range(len(MASK))])


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.resizable])
def test_heads_and_neurons_against_a_plain_loop(name, tiny_model):
    model = tiny_model(name)
    family, result = family_of(model), measure_activations(model, [BATCH, BATCH])
    for layer in (0,) if family.shared_layers else (0, 1):
        heads, pieces = torch.zeros(4), recorded(model, family.attention_output, layer)
        for piece in pieces:
            for head in range(4):
                heads[head] += piece[head * 8 : head * 8 + 8].square().sum().sqrt()
        torch.testing.assert_close(result.heads[layer], heads / len(pieces))
        neurons = recorded(model, family.ffn_out, layer).abs().mean(dim=0)
        torch.testing.assert_close(result.neurons[layer], neurons)


def test_hidden_dimensions_against_what_the_layers_give(tiny_model):
    model = tiny_model("bert")
    result = measure_activations(model, [BATCH])
    states = []
    for layer in layers_of(model):
        for norm in (layer.attention.output.LayerNorm, layer.output.LayerNorm):
            norm.register_forward_hook(lambda _, __, output: states.append(output.detach()))
    model(**BATCH)
    real = torch.cat([given[MASK.bool()] for given in states])
    torch.testing.assert_close(result.hidden, real.abs().mean(dim=0))
    torch.testing.assert_close(result.moments, real.T @ real / len(real))


def test_padding_and_dropout_do_not_change_importance(tiny_model):
    model = tiny_model("bert").train()
    wider = {name: torch.nn.functional.pad(value, (0, 5)) for name, value in BATCH.items()}
    first, padded = measure_activations(model, [BATCH]), measure_activations(model, [wider])
    assert model.training
    torch.testing.assert_close(padded.hidden, first.hidden)
    torch.testing.assert_close(padded.neurons[1], first.neurons[1])
    assert not model.bert.encoder.layer[0].output.LayerNorm._forward_hooks


def test_importance_is_measured_for_narrower_students_only(tiny_model, tiny_tokenizer, tiny_task, rows, tiny_folder):
    teacher = tiny_model("bert")
    given = (rows(20), tiny_task, fast_tokenizer(teacher.config, tiny_tokenizer), 0)
    for spec in ({"layers": 1}, {"layers": 1, "start": "random"}, {"hidden": 48}, {"factors": 8}):
        assert importance_for_student(Student(**spec), teacher, *given) is None
    folder = str(tiny_folder(tiny_model("bert", hidden_size=24, num_attention_heads=3)))
    assert importance_for_student(Student(source=folder), teacher, *given) is None
    assert importance_for_student(Student(source=folder, hidden=16), teacher, *given).hidden.shape == (24,)
    assert importance_for_student(Student(hidden=16), teacher, *given).hidden.shape == (32,)


@pytest.mark.parametrize("start", ["slice", "svd"])
def test_a_recipe_cuts_by_what_was_measured(start, tiny_folder, prepared, tmp_path, monkeypatch):
    result = []

    def measure_once(*given):
        result.append(measure_activations(*given))
        return result[-1]

    monkeypatch.setattr(importances, "measure_activations", measure_once)
    teacher = tiny_folder("bert")
    spec = Student(layers=1, hidden=16, ffn=40, factors=8, start=start)
    distill(teacher, spec, prepared, False, 0, tmp_path, console=Console("quiet"))
    student = load(tmp_path)
    assert (layer_shapes(student), student.config.hidden_size) == ([(2, 40)], 16)
    assert importances.SAMPLE > 50  # all rows were seen
    if start == "slice":
        kept = select_dimensions(result[0], 16).kept
        ours, theirs = (model.bert.embeddings.position_embeddings.weight for model in (student, load(teacher)))
        assert torch.equal(ours, theirs[:, kept])


def test_a_cut_student_learns(tiny_folder, prepared, tmp_path):
    settings = Distill(epochs=1, batch_size=16, losses={"soft_label": 1.0, "hidden_state": 1.0})
    spec = Student(layers=1, hidden=20, heads=3)
    made = distill(tiny_folder("bert"), spec, prepared, settings, 0, tmp_path)
    assert made is not None
    assert load(tmp_path).config.model_type == "compress-bert"
