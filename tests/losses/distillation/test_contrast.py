import math

import pytest

from tests.losses.layers import EXAMPLES, LENGTHS, batch_of, dot, mean, softmax, states, value


def unit(vector):
    return [each / math.sqrt(dot(vector, vector)) for each in vector]


def pooled(parts, pool):
    rows = parts["hidden"].tolist()
    if pool == "cls":
        return [unit(row[0]) for row in rows]
    return [
        unit([mean(each) for each in zip(*row[:count], strict=True)]) for row, count in zip(rows, LENGTHS, strict=True)
    ]


def slow(ours, theirs, temperature, pool):
    a, b = pooled(ours, pool), pooled(theirs, pool)
    return [-math.log(softmax([dot(x, y) / temperature for y in b])[at]) for at, x in enumerate(a)]


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_contrast_equals_reference_implementation(pool, temperature):
    ours, theirs = states(), states(seed=9)
    result = value("contrast", ours, theirs, batch_of(), temperature=temperature, pool=pool)
    assert result.item() == pytest.approx(mean(slow(ours, theirs, temperature, pool)), rel=1e-5)


def test_default_temperature_and_pooling():
    ours, theirs = states(), states(seed=9)
    expected = mean(slow(ours, theirs, 0.05, "cls"))
    assert value("contrast", ours, theirs, batch_of()).item() == pytest.approx(expected, rel=1e-5)


def test_rows_have_equal_weight():
    ours, theirs = states(), states(seed=9)
    texts = slow(ours, theirs, 0.05, "cls")
    result = value("contrast", ours, theirs, batch_of(group=[0, 0, 1]))
    assert result.item() == pytest.approx(mean([mean(texts[:2]), texts[2]]), rel=1e-5)


def test_high_temperature_approaches_log_n():
    result = value("contrast", states(), states(seed=9), batch_of(), temperature=1e6)
    assert result.item() == pytest.approx(math.log(EXAMPLES), rel=1e-4)
