"""Records of cuts, alone and one after the other."""

import torch

from compress.model_history import PruningInfo
from compress.prune.pruning_record import pruned_layer, since_first_cut


def record(heads, heads_importance, ffn, ffn_importance):
    layer = pruned_layer(heads, torch.tensor(heads_importance), ffn, torch.tensor(ffn_importance))
    return PruningInfo(criterion="taylor", layers=(layer,))


def test_a_record_has_the_importance_of_what_was_kept_and_removed():
    (layer,) = record([0, 2], [0.123456, 1.0, 2.0], [1], [3.0, 4.0]).layers
    assert layer.heads == (0, 2)
    assert layer.heads_importance == (0.1235, 2.0)
    assert layer.removed_heads_importance == (1.0,)
    assert (layer.ffn, layer.ffn_importance, layer.removed_ffn_importance) == ((1,), (4.0,), (3.0,))


def test_indices_of_a_second_cut_are_those_before_the_first():
    first = record([0, 2, 3], [9.0, 1.0, 7.0, 6.0], [0, 1], [2.0, 3.0])
    second = record([0, 2], [0.5, 0.1, 0.4], [1], [20.0, 30.0])
    (layer,) = since_first_cut(first, second).layers
    assert layer.heads == (0, 3)
    assert layer.heads_importance == (11.0, 8.8)  # 0.5, 0.1 and 0.4 become 22, what these heads had in the first cut
    assert layer.removed_heads_importance == (1.0, 2.2)  # head 1 in the first cut, head 2 in the second
    assert (layer.ffn, layer.removed_ffn_importance) == ((1,), (2.0,))


def test_a_record_of_an_earlier_version_has_no_importance_of_what_it_removed():
    first, second = record([0, 2], [9.0, 1.0, 7.0], [0], [2.0]), record([1], [0.5, 0.1], [0], [2.0])
    old = first.layers[0].model_copy(update={"removed_heads_importance": None, "removed_ffn_importance": None})
    (layer,) = since_first_cut(first.model_copy(update={"layers": (old,)}), second).layers
    assert layer.heads == (2,)
    assert layer.removed_heads_importance is None


def test_a_layer_dropped_by_the_first_cut_stays_dropped():
    dropped = record([], [1.0, 2.0], [], [3.0]).layers[0]
    first = record([1], [1.0, 2.0], [0], [3.0, 4.0])
    first = first.model_copy(update={"layers": (dropped, *first.layers)})
    second = record([0], [5.0], [0], [6.0])
    layers = since_first_cut(first, second).layers
    assert layers[0] == dropped
    assert since_first_cut(first, second).dropped_before == (0,)
    assert since_first_cut(first, second).left == [True]
    assert first.left == [False, True]
    assert (layers[1].heads, layers[1].heads_importance) == ((1,), (2.0,))


def test_a_layer_dropped_by_the_second_cut_has_all_importance_of_what_was_removed():
    first, second = record([0, 2], [9.0, 1.0, 7.0], [0], [2.0, 3.0]), record([], [0.5, 0.1], [], [4.0])
    (layer,) = since_first_cut(first, second).layers
    assert layer.is_dropped
    assert layer.removed_heads_importance == (13.33, 1.0, 2.667)  # those of the later cut add up to 16, as before
    assert layer.removed_ffn_importance == (2.0, 3.0)
