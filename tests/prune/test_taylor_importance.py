import copy

import pytest
import torch

from compress.errors import ModelError
from compress.models.encoder_parts import family_of, head_size, layers_of, part
from compress.prune.prune_ratios import layer_parameters, resolve_ratios
from compress.prune.surgery import cut
from compress.prune.taylor_importance import measure_importance
from compress.recipe.training_schema import Prune


def loss(model, batch):
    return model(**batch).loss


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, 24, (3, 4, 7), generator=generator)
    return [
        {"input_ids": each, "attention_mask": torch.ones_like(each), "labels": torch.tensor([0, 1, 0, 1])}
        for each in ids
    ]


def test_batches_add_up(tiny_model, batches):
    model = tiny_model("bert")
    alone = [measure_importance(model, [batch], loss) for batch in batches]
    together = measure_importance(model, batches, loss)
    for layer in range(2):
        torch.testing.assert_close(together.heads[layer], sum(each.heads[layer] for each in alone))
        torch.testing.assert_close(together.ffn[layer], sum(each.ffn[layer] for each in alone))
    assert [len(each) for each in together.heads + together.ffn] == [4, 4, 64, 64]


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_it_foretells_what_a_small_step_towards_the_cut_costs(family, tiny_model, batches):
    """To first order, taking a millionth of a head away costs a millionth of its importance."""
    model, step = tiny_model(family).double(), 1e-6
    found = measure_importance(model, batches[:1], loss)
    size = head_size(model)
    weight = part(layers_of(model)[0], family_of(model).attention_output).weight.data
    with torch.no_grad():
        for head in range(4):
            kept, columns = weight.clone(), slice(head * size, (head + 1) * size)
            costs = []
            for sign in (1, -1):
                weight[:, columns] = kept[:, columns] * (1 - sign * step)
                costs.append(float(loss(model, batches[0])))
            weight.copy_(kept)
            cost = abs(costs[0] - costs[1]) / (2 * step)
            assert cost == pytest.approx(float(found.heads[0][head]), rel=1e-3)


def test_what_contributes_nothing_is_the_least_important(tiny_model, batches):
    model = tiny_model("bert")
    family = family_of(model)
    layer = layers_of(model)[1]
    part(layer, family.attention_output).weight.data[:, 16:24] = 0
    found = measure_importance(model, batches, loss)
    assert found.heads[1].argmin() == 2
    assert found.heads[1][2] == 0


def test_the_model_is_left_as_it_was(tiny_model, batches):
    model = tiny_model("electra").train()
    before = copy.deepcopy(model.state_dict())
    first, second = (measure_importance(model, batches, loss) for _ in range(2))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(first.ffn[0], second.ffn[0])  # without dropout


def test_numbers_that_are_none_are_told(tiny_model, batches):
    model = tiny_model("bert")
    model.classifier.weight.data[:] = float("nan")
    with pytest.raises(ModelError, match="not a number"):
        measure_importance(model, batches, loss)


def test_a_loss_that_passes_layers_by_is_told(tiny_model, batches):
    model = tiny_model("bert")
    with pytest.raises(ModelError, match="does not reach every layer"):
        measure_importance(model, batches, lambda model, batch: model.classifier.weight.sum())


def test_shares_are_the_recipe_s(tiny_model):
    assert resolve_ratios(tiny_model("bert"), Prune(heads=0.25, ffn=0.5)) == (0.25, 0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": 0.8}, "prune.heads: 0.8 cannot be removed: every layer keeps a head, so 0.75 is the most"),
        ({"ffn": 0.8}, "prune.ffn: 0.8 .* 16 neurons .* 0.75 is the most"),
        ({"ffn": 0.1, "round_to": 64}, "so 0 is the most"),
        ({"to": {"parameters": 0.2}}, r"prune.to.parameters: 0.2 .* 0.\d+ is the least"),
    ],
)
def test_more_than_can_go_is_refused(tiny_model, settings, message):
    with pytest.raises(ModelError, match=message):
        resolve_ratios(tiny_model("bert"), Prune(**settings))


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_a_share_of_parameters_is_reached(tiny_model, family):
    model = tiny_model(family)
    heads, ffn = resolve_ratios(model, Prune(to={"parameters": 0.51}))
    assert heads == ffn
    kept = round(4 * (1 - heads)), round(64 * (1 - ffn))
    pruned = cut(copy.deepcopy(model), [range(kept[0])] * 2, [range(kept[1])] * 2)
    assert layer_parameters(pruned) / layer_parameters(model) == pytest.approx(0.51, abs=0.02)
