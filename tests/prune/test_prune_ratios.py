import copy

import pytest
import torch

from compress.errors import ModelError
from compress.families import FAMILIES
from compress.model_folder.model_info import ShapeInfo
from compress.models.encoder_parts import layers_of, shape_of
from compress.prune.allocation import select_units
from compress.prune.prune_ratios import equivalent_ratios, layer_parameters, max_removable, resolve_ratios
from compress.prune.surgery import remove_units
from compress.recipe.prune_schema import Prune


def test_max_removable_keeps_one_block_per_layer():
    assert max_removable([12, 12]) == pytest.approx(11 / 12)
    assert max_removable([64, 32], block=16) == pytest.approx(1 - 32 / 96)
    assert max_removable([64, 32], block=16, even=True) == 0.5
    assert max_removable([8], block=16) == 0


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.prunable])
def test_parameters_of_layers_follow_from_the_shape(tiny_model, family):
    model = remove_units(tiny_model(family), [[0, 2], [1]], [range(48), range(16)])
    counted = sum(parameter.numel() for layer in layers_of(model) for parameter in layer.parameters())
    assert layer_parameters(shape_of(model)) == counted


def test_ratios_are_the_recipes(tiny_model):
    assert resolve_ratios(shape_of(tiny_model("bert")), Prune(heads=0.25, ffn=0.5)) == (0.25, 0.5)


@pytest.mark.parametrize(("remaining", "heads"), [(0.9, 4), (0.7, 4), (0.4, 4), (0.7, 2), (0.7, 12), (0.2, 12)])
def test_an_even_goal_is_reached_though_heads_are_whole(remaining, heads):
    shape = ShapeInfo(
        family="bert",
        hidden=64 * heads,
        heads=(heads,) * 4,
        ffn=(256 * heads,) * 4,
        vocabulary=10,
        parameters=1,
        embedding_parameters=1,
        head_size=64,
    )
    shares = resolve_ratios(shape, Prune(to={"parameters": remaining}, even=True))
    counts = [
        tuple(map(len, select_units([torch.rand(each) for each in units], share, block, even=True)))
        for units, share, block in ((shape.heads, shares[0], 1), (shape.ffn, shares[1], 16))
    ]
    after = shape.model_copy(update={"heads": counts[0], "ffn": counts[1]})
    assert layer_parameters(after) / layer_parameters(shape) == pytest.approx(remaining, abs=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"heads": 0.8},
            "heads: 0.8 cannot be removed: every layer keeps at least one head, so the maximum is 0.75",
        ),
        ({"ffn": 0.8}, "ffn: 0.8 .* 16 neurons .* the maximum is 0.75"),
        ({"ffn": 0.1, "round_to": 64}, "so the maximum is 0"),
        ({"to": {"parameters": 0.2}}, r"to.parameters: 0.2 .* the minimum is 0.\d+"),
    ],
)
def test_ratios_above_the_maximum_are_refused(tiny_model, settings, message):
    with pytest.raises(ModelError, match=message):
        resolve_ratios(shape_of(tiny_model("bert")), Prune(**settings))


@pytest.mark.parametrize("settings", [{"heads": 0.915}, {"ffn": 0.96}, {"to": {"parameters": 0.09}}])
@pytest.mark.parametrize("cuts", [2, 5, 9])
def test_rounding_of_several_cuts_puts_no_goal_out_of_reach(settings, cuts):
    counts = {"heads": (12,) * 4, "ffn": (512,) * 4, "hidden": 96, "head_size": 8, "vocabulary": 9}
    shape = ShapeInfo(family="bert", parameters=9, embedding_parameters=9, **counts)
    whole = Prune(**settings, cuts=cuts)
    wanted = resolve_ratios(shape, whole)
    for number, stage in enumerate(whole.stages()):
        heads, ffn = resolve_ratios(shape, stage, is_later=number > 0)
        importances = [[torch.ones(count) for count in counts] for counts in (shape.heads, shape.ffn)]
        kept = select_units(importances[0], heads), select_units(importances[1], ffn, stage.round_to)
        heads, ffn = (tuple(map(len, layers)) for layers in kept)
        shape = shape.model_copy(update={"heads": heads, "ffn": ffn})
    assert sum(shape.heads) == pytest.approx(48 * (1 - wanted[0]), abs=1.5)
    assert sum(shape.ffn) == pytest.approx(2048 * (1 - wanted[1]), abs=24)


def test_equivalent_ratios_leave_the_same_parameters(tiny_model):
    shape = shape_of(tiny_model("bert"))
    pairs = equivalent_ratios(shape, Prune(to={"parameters": 0.51}))
    assert len(pairs) > 2
    assert len({heads for heads, _ in pairs}) == len(pairs)
    head, neuron = 8 * (4 * 32 + 3), 2 * 32 + 1
    left = [layer_parameters(shape) - 8 * heads * head - 128 * ffn * neuron for heads, ffn in pairs]
    assert left == pytest.approx([0.51 * layer_parameters(shape)] * len(pairs))


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_parameter_goal_is_reached(tiny_model, family):
    model = tiny_model(family)
    heads, ffn = resolve_ratios(shape_of(model), Prune(to={"parameters": 0.51}))
    assert heads == ffn
    kept = round(4 * (1 - heads)), round(64 * (1 - ffn))
    pruned = remove_units(copy.deepcopy(model), [range(kept[0])] * 2, [range(kept[1])] * 2)
    assert layer_parameters(shape_of(pruned)) / layer_parameters(shape_of(model)) == pytest.approx(0.51, abs=0.02)


@pytest.mark.parametrize("remaining", [0.9, 0.75, 0.5, 0.3])
@pytest.mark.parametrize("layers", [2, 6])
def test_even_pairs_leave_what_is_asked_for_once_heads_are_whole(remaining, layers):
    sizes = {"hidden": 64, "heads": (4,) * layers, "ffn": (256,) * layers, "vocabulary": 10, "head_size": 16}
    shape = ShapeInfo(family="bert", parameters=0, embedding_parameters=0, **sizes)
    pairs = equivalent_ratios(shape, Prune(to={"parameters": remaining}, even=True, round_to=1))
    assert pairs
    if remaining == 0.3:
        one_a_layer = max(share for share, _ in pairs)
        assert [len(each) for each in select_units([torch.rand(4)], one_a_layer, even=True)] == [1]
    for share, other in pairs:
        kept = [
            [len(units) for units in select_units([torch.rand(count) for count in counts], part, even=True)]
            for counts, part in ((shape.heads, share), (shape.ffn, other))
        ]
        left = shape.model_copy(update={"heads": tuple(kept[0]), "ffn": tuple(kept[1])})
        assert layer_parameters(left) / layer_parameters(shape) == pytest.approx(remaining, abs=0.01)
