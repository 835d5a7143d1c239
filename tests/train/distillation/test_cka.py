import itertools

import pytest
import torch

from compress.train.distillation.cka_layer_map import LinearCKA, align_layers


def by_definition(ours, theirs):
    """CKA as the paper defines it: the alignment of centred Gram matrices."""
    centring = torch.eye(len(ours)).double() - 1 / len(ours)
    one, other = (centring @ (each.double() @ each.double().T) @ centring for each in (ours, theirs))
    return ((one * other).sum() / (one.norm() * other.norm())).item()


def likeness(ours, theirs, parts=1):
    result = LinearCKA()
    chunks = [zip(*(each.chunk(parts) for each in layers), strict=True) for layers in (ours, theirs)]
    for student, teacher in zip(*chunks, strict=True):
        result.add(student, teacher)
    return result.matrix()


def layers(count, width, tokens=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(tokens, width, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_every_pair_is_compared_as_defined(parts, offset):
    ours, theirs = layers(2, 5), [each + offset for each in layers(3, 7, seed=1)]
    theirs[1] = theirs[1] + torch.nn.functional.pad(ours[0], (0, 2))
    wanted = torch.tensor([[by_definition(one, other) for other in theirs] for one in ours])
    torch.testing.assert_close(likeness(ours, theirs, parts).float(), wanted.float(), atol=1e-4, rtol=1e-4)


def test_neither_a_rotation_nor_a_scale_nor_an_offset_changes_anything():
    (features,) = layers(1, 6)
    rotation = torch.linalg.qr(layers(1, 6, tokens=6, seed=3)[0])[0]
    changed = [features, 3.0 * features, features @ rotation, features + 5.0, torch.cat([features, features], 1)]
    torch.testing.assert_close(likeness([features], changed), torch.ones(1, 5).double(), atol=1e-5, rtol=0)


def test_bf16_and_constant_layers():
    (features,) = layers(1, 6)
    assert likeness([features.bfloat16()], [features]).item() == pytest.approx(1.0, abs=1e-3)
    assert likeness([features], [torch.full((40, 4), 7.0)]).item() == 0.0


@pytest.mark.parametrize(("student", "teacher"), [(1, 1), (1, 4), (3, 3), (3, 6), (4, 2), (5, 1)])
def test_the_assignment_is_the_best_of_all_that_do_not_cross(student, teacher):
    for seed in range(20):
        table = torch.rand(student, teacher, generator=torch.Generator().manual_seed(seed))
        pairs = align_layers(table)
        chosen = [layer for _, layer in pairs]
        assert [layer for layer, _ in pairs] == list(range(student))

        def ordered(places):
            return all(one < other or (one == other and student > teacher) for one, other in itertools.pairwise(places))

        assert ordered(chosen)
        possible = filter(ordered, itertools.product(range(teacher), repeat=student))
        best = max(sum(table[layer, index].item() for layer, index in enumerate(each)) for each in possible)
        assert sum(table[pair].item() for pair in pairs) == pytest.approx(best)
