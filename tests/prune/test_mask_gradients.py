import copy

import pytest
import torch

from compress.errors import ModelError
from compress.models.encoder_parts import family_of, head_size, layers_of, part
from compress.prune.mask_gradients import collect_units


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


def shapes_of(units):
    return [tuple(each.gradients.shape) for each in units.heads + units.ffn]


def test_every_row_has_the_gradient_of_its_own_loss(tiny_model, batches):
    model = tiny_model("bert")
    rows = [{name: value[row : row + 1] for name, value in batch.items()} for batch in batches for row in range(4)]
    alone, together = collect_units(model, rows, loss), collect_units(model, batches, loss)
    assert shapes_of(together) == [(12, 4), (12, 4), (12, 64), (12, 64)]
    assert together.heads[0].batches == (4, 4, 4)
    for ours, theirs in zip(together.heads + together.ffn, alone.heads + alone.ffn, strict=True):
        torch.testing.assert_close(ours.gradients, theirs.gradients, rtol=1e-4, atol=1e-6)


def test_examples_of_a_row_are_added_up(tiny_model, batches):
    model, group = tiny_model("bert"), torch.tensor([0, 0, 1, 1])
    grouped = collect_units(model, [batches[0] | {"group": group}], lambda model, batch: loss(model, batches[0]))
    single = collect_units(model, batches[:1], loss)
    assert grouped.ffn[1].batches == (2,)
    expected = single.ffn[1].gradients.unflatten(0, (2, 2)).sum(dim=1) / 2
    torch.testing.assert_close(grouped.ffn[1].gradients, expected)


def test_units_have_their_output_weight_and_a_seed_of_their_own(tiny_model, batches):
    model = tiny_model("distilbert")
    units = collect_units(model, batches, loss, seed=3)
    weight = part(layers_of(model)[1], family_of(model).attention_output).weight
    assert torch.equal(units.heads[1].weight, weight)
    assert len({each.seed for each in units.heads + units.ffn}) == 4


def test_mask_of_ones_does_not_change_the_loss(tiny_model, batches):
    model, losses = tiny_model("bert"), []

    def recorded(model, batch):
        losses.append(loss(model, batch))
        return losses[-1]

    collect_units(model, batches, recorded)
    assert [each.item() for each in losses] == [loss(model, batch).item() for batch in batches]


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_mask_gradient_is_the_change_of_the_loss_for_a_small_mask_change(family, tiny_model, batches):
    """To first order, scaling a head by one millionth less costs one millionth of its mask gradient."""
    model, step = tiny_model(family).double(), 1e-6
    result = collect_units(model, batches[:1], loss)
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
            cost = (costs[1] - costs[0]) / (2 * step)
            assert cost == pytest.approx(float(result.heads[0].gradients[:, head].mean()), rel=1e-3)


def test_head_that_contributes_nothing_has_zero_gradient(tiny_model, batches):
    model = tiny_model("bert")
    family = family_of(model)
    layer = layers_of(model)[1]
    part(layer, family.attention_output).weight.data[:, 16:24] = 0
    result = collect_units(model, batches, loss)
    assert result.heads[1].gradients.abs().sum(dim=0).argmin() == 2
    assert not result.heads[1].gradients[:, 2].any()


def test_model_is_unchanged(tiny_model, batches):
    model = tiny_model("electra").train()
    before = copy.deepcopy(model.state_dict())
    first, second = (collect_units(model, batches, loss) for _ in range(2))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(first.ffn[0].gradients, second.ffn[0].gradients)  # without dropout


def test_nan_importance_is_an_error(tiny_model, batches):
    model = tiny_model("bert")
    model.classifier.weight.data[:] = float("nan")
    with pytest.raises(ModelError, match="NaN or infinite"):
        collect_units(model, batches, loss)
