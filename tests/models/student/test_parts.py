"""Parts of a model: they compute what the cut model computes, and share its weights."""

import pytest
import torch

from compress.families import FAMILIES
from compress.model_shapes import part_shape, parts_of
from compress.models.encoder_parts import layer_shapes, layers_of, shape_of
from compress.models.student.parts import order_units, run_part, take_part
from compress.models.student.slicing import weight_importance
from compress.recipe.student_schema import Part

PRUNABLE = [name for name, family in FAMILIES.items() if family.prunable]
SMALLER = Part(layers=2, heads=3, ffn=24)


@pytest.fixture(params=PRUNABLE)
def model(request, tiny_model):
    made = tiny_model(request.param, labels=("no", "yes"), num_hidden_layers=3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    made.train(False)
    return made


def logits(outputs):
    return outputs["logits"].detach()


@pytest.mark.parametrize("part", [SMALLER, Part(layers=1, heads=1, ffn=1), Part(layers=3, heads=4, ffn=64)])
def test_a_part_computes_what_it_computes_as_a_model_of_its_own(model, batch, part) -> None:
    taken = take_part(model, part).train(False)
    assert layer_shapes(taken) == [(part.heads, part.ffn)] * part.layers
    assert shape_of(taken).heads == part_shape(shape_of(model), part).heads
    torch.testing.assert_close(logits(run_part(model, batch(model), part)), logits(taken(**batch(taken))))


def test_the_model_is_the_same_afterwards(model, batch) -> None:
    before, layers = logits(model(**batch(model))), layers_of(model)
    run_part(model, batch(model), SMALLER)
    assert layers_of(model) == layers
    assert torch.equal(logits(model(**batch(model))), before)
    with pytest.raises(RuntimeError):
        run_part(model, batch(model), Part(layers=2, heads=9, ffn=24))
    assert torch.equal(logits(model(**batch(model))), before)


def test_gradients_reach_the_shared_weights_of_the_part_alone(model, batch) -> None:
    run_part(model, batch(model), SMALLER)["logits"].sum().backward()
    first, *others = layers_of(model)
    assert all(parameter.grad is None for parameter in first.parameters())
    for layer in others:
        gradients = {name: parameter.grad for name, parameter in layer.named_parameters()}
        neurons = next(grad for name, grad in gradients.items() if grad is not None and grad.shape == (64, 32))
        assert neurons[:24].abs().sum() > 0
        assert neurons[24:].abs().sum() == 0


def test_ordered_units_compute_the_same(model, batch) -> None:
    before = logits(model(**batch(model)))
    order_units(model, weight_importance(model))
    torch.testing.assert_close(logits(model(**batch(model))), before)
    for heads, neurons in zip(weight_importance(model).heads, weight_importance(model).neurons, strict=True):
        assert heads.tolist() == sorted(heads.tolist(), reverse=True)
        assert neurons.tolist() == sorted(neurons.tolist(), reverse=True)


def test_the_grid_goes_from_the_smallest_to_the_largest(model) -> None:
    parts = parts_of(shape_of(model))
    assert (parts[0], parts[-1]) == (Part(layers=1, heads=1, ffn=8), Part(layers=3, heads=4, ffn=64))
    assert len(set(map(str, parts))) == len(parts) == 3 * 4 * 5


@pytest.mark.parametrize("head", ["ForTokenClassification", "ForQuestionAnswering", "ForSentenceEmbedding"])
def test_every_head_reads_a_part(head, tiny_model, batch) -> None:
    made = tiny_model("bert", head=head, num_hidden_layers=3).train(False)
    inputs = batch(made)
    taken = take_part(made, SMALLER).train(False)
    found, expected = run_part(made, inputs, SMALLER), taken(**inputs)
    names = [name for name in expected if name in ("logits", "start_logits", "end_logits", "sentence_embedding")]
    assert names
    for name in names:
        torch.testing.assert_close(found[name].detach(), expected[name].detach())
