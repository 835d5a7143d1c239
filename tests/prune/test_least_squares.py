"""Output weights fitted to the unpruned layers."""

import copy

import pytest
import torch

from compress.families import FAMILIES
from compress.models.encoder_parts import family_of, layers_of, part
from compress.prune.least_squares import fit_output_weights
from compress.prune.surgery import remove_units

HEADS, FFN = [[0, 2], [1, 2, 3]], [list(range(32)), list(range(16, 64))]
PRUNABLE = [name for name, family in FAMILIES.items() if family.prunable]


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, 24, (8, 16, 7), generator=generator)
    mask = torch.ones_like(ids[0])
    mask[:, 5:] = 0
    return [{"input_ids": each, "attention_mask": mask} for each in ids]


def first_outputs(model, batches, path):
    """Return the outputs of the first layer's part, whose inputs surgery does not change, for real tokens."""
    seen = []
    hook = part(layers_of(model)[0], path).register_forward_hook(lambda _, inputs, output: seen.append(output))
    with torch.no_grad():
        for batch in batches:
            model(**batch)
    hook.remove()
    return torch.cat(seen)[:, :5]


@pytest.mark.parametrize("family", PRUNABLE)
def test_fitted_outputs_are_closer_to_the_unpruned_layers(family, tiny_model, batches):
    model = tiny_model(family)
    path = family_of(model).attention_output
    pruned = remove_units(copy.deepcopy(model), HEADS, FFN)
    fitted = copy.deepcopy(pruned)
    fit_output_weights(fitted, model, HEADS, FFN, batches)
    wanted = first_outputs(model, batches, path)
    errors = [float((first_outputs(each, batches, path) - wanted).square().mean()) for each in (fitted, pruned)]
    assert errors[0] < 0.95 * errors[1]


def test_inputs_that_carry_the_removed_ones_give_the_same_outputs(tiny_model, batches):
    """A removed neuron that always equals a kept one costs nothing: its weight is added to that one's."""
    model = tiny_model("bert")
    family = family_of(model)
    for layer in layers_of(model):
        into, out = part(layer, family.ffn_in), part(layer, family.ffn_out)
        into.weight.data[32:], into.bias.data[32:] = into.weight.data[:32], into.bias.data[:32]
        assert out.in_features == 64
    heads, ffn = [list(range(4))] * 2, [list(range(32))] * 2
    pruned = remove_units(copy.deepcopy(model), heads, ffn)
    with torch.no_grad():
        before = (pruned(**batches[0]).logits - model(**batches[0]).logits).abs().max()
        fit_output_weights(pruned, model, heads, ffn, batches)
        assert (pruned(**batches[0]).logits - model(**batches[0]).logits).abs().max() < 0.2 * before


def test_the_model_is_unchanged(tiny_model, batches):
    model = tiny_model("bert").train()
    before = copy.deepcopy(model.state_dict())
    fit_output_weights(remove_units(copy.deepcopy(model), HEADS, FFN), model, HEADS, FFN, batches)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
