import pytest

from compress.errors import UsageError
from compress.train.distillation.layer_pairs import layer_map


@pytest.mark.parametrize(
    ("wanted", "student", "teacher", "pairs"),
    [
        ("uniform", 3, 6, ((0, 1), (1, 3), (2, 5))),
        ("uniform", 2, 2, ((0, 0), (1, 1))),
        ("uniform", 4, 2, ((0, 0), (1, 0), (2, 1), (3, 1))),
        ("last", 2, 6, ((0, 4), (1, 5))),
        ("first", 2, 6, ((0, 0), (1, 1))),
        (((1, 5),), 2, 6, ((1, 5),)),
    ],
)
def test_maps(wanted, student, teacher, pairs):
    assert layer_map(wanted, student, teacher) == pairs


def test_missing_layers_are_named():
    with pytest.raises(UsageError, match=r"\[2, 0\].*student has layers 0 to 1"):
        layer_map(((2, 0),), 2, 6)
    with pytest.raises(UsageError, match="layer_map: last"):
        layer_map("last", 3, 2)
