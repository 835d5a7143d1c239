from itertools import chain

import pytest
import torch

from compress.errors import UsageError
from compress.losses import LOSSES
from compress.losses.distillation.relation import relation_heads
from tests.losses.layers import HEADS, SIZE, batch_of, kl, mean, over_maps, section, states, value

PARTS = {"q": "query", "k": "key", "v": "value"}


def recut(states, heads):
    """All heads' numbers of a token side by side, cut anew, by plain lists."""
    examples, _, tokens, _ = states.shape
    rows = []
    for at in range(examples):
        beside = [list(chain(*states[at, :, token].tolist())) for token in range(tokens)]
        size = len(beside[0]) // heads
        rows.append([[line[head * size : (head + 1) * size] for line in beside] for head in range(heads)])
    return torch.tensor(rows)


def slow(ours, theirs, pairs, heads):
    cut = [{side: recut(each[name], heads) for side, name in PARTS.items()} for each in (ours, theirs)]
    return mean([over_maps(*((each[a], each[b]) for each in cut), kl) for a, b in pairs])


@pytest.mark.parametrize("pairs", [("qq", "kk", "vv"), ("qk", "vv"), ("vv",)])
@pytest.mark.parametrize("heads", [None, 1, 2, 12])
def test_it_is_the_divergence_of_relations(pairs, heads):
    ours, theirs = states(), states(seed=9)
    options = {"pairs": pairs} | ({} if heads is None else {"heads": heads})
    expected = slow(ours, theirs, pairs, heads or HEADS)
    assert value("relation", ours, theirs, batch_of(), **options).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("heads", "size", "cut"), [(3, SIZE, 3), (2, SIZE, 4), (4, 3, 4), (5, 4, 4), (1, 7, 1)])
def test_relation_heads_allow_other_heads_and_widths(heads, size, cut):
    ours, theirs = states(heads=heads, size=size), states(seed=9)
    expected = slow(ours, theirs, ("qq", "kk", "vv"), cut)
    assert value("relation", ours, theirs, batch_of()).item() == pytest.approx(expected, rel=1e-5)


def test_the_number_of_relation_heads():
    assert relation_heads(384, 384, 12, None) == 12
    assert relation_heads(384, 768, 12, None) == 12
    assert relation_heads(384, 384, 12, 48) == 48
    assert relation_heads(128, 384, 12, None) == 8
    assert relation_heads(5 * 32, 384, 12, None) == 8
    assert relation_heads(7, 384, 12, None) == 1


def test_invalid_relation_heads_error_names_divisors():
    with pytest.raises(UsageError, match=r"heads: 12 .* 128 \(student\) and 384 \(teacher\)") as caught:
        relation_heads(128, 384, 12, 12)
    assert "8, 16" in caught.value.hint


@pytest.mark.parametrize(("pairs", "sides"), [(("vv",), ("value",)), (("qk", "vv"), ("query", "key", "value"))])
def test_only_named_pairs_are_read(pairs, sides):
    chosen = section("relation", pairs=pairs)
    assert LOSSES["relation"].parts(chosen) == sides
    ours, theirs = ({name: each[name] for name in sides} for each in (states(heads=3), states(seed=9)))
    expected = value("relation", states(heads=3), states(seed=9), batch_of(), pairs=pairs)
    assert value("relation", ours, theirs, batch_of(), pairs=pairs) == expected
