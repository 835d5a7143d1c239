import math

import pytest

from tests.losses.layers import EXAMPLES, LENGTHS, TOKENS, WIDTH, batch_of, dot, mean, states, value


def over_tokens(distance, ours, theirs):
    rows = []
    for row, length in enumerate(LENGTHS):
        rows.append(mean([distance(ours[row][token], theirs[row][token]) for token in range(length)]))
    return mean(rows)


def squares(a, b):
    return mean([(x - y) ** 2 for x, y in zip(a, b, strict=True)])


def turned(a, b):
    return 1 - dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def lists():
    ours, theirs = states(), states(seed=9)
    return ours, theirs, ours["hidden"].tolist(), theirs["hidden"].tolist()


@pytest.mark.parametrize(("form", "distance"), [("mse", squares), ("cosine", turned)])
def test_vectors_are_compared_at_real_tokens(form, distance):
    ours, theirs, a, b = lists()
    expected = over_tokens(distance, a, b)
    assert value("hidden_state", ours, theirs, batch_of(), form=form).item() == pytest.approx(expected, rel=1e-5)


def test_embedding_equals_hidden_state_mse():
    ours, theirs, a, b = lists()
    expected = over_tokens(squares, a, b)
    assert value("embedding", ours, theirs, batch_of()).item() == pytest.approx(expected, rel=1e-5)


def test_first_tokens_are_compared_at_length_one():
    ours, theirs, a, b = lists()
    expected = mean([2 * turned(a[row][0], b[row][0]) for row in range(EXAMPLES)])
    assert value("hidden_state", ours, theirs, batch_of(), form="cls").item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("form", "most"), [("cosine", 2.0), ("cls", 4.0)])
def test_cosine_ignores_lengths(form, most):
    ours = states()
    scaled = {"hidden": 5 * ours["hidden"]}
    against = {"hidden": -2 * ours["hidden"]}
    assert value("hidden_state", ours, scaled, batch_of(), form=form).item() == pytest.approx(0.0, abs=1e-6)
    assert value("hidden_state", ours, against, batch_of(), form=form).item() == pytest.approx(most, rel=1e-5)


def test_dimensions_of_the_tests_differ():
    assert len({EXAMPLES, TOKENS, WIDTH}) == 3
