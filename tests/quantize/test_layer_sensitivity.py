"""The order in which layers return to fp32, on made-up errors."""

import math

import numpy as np
import pytest

from compress.quantize.layer_sensitivity import first_passing, growing_counts, layer_sensitivities, worst_first


def outputs(value: float):
    return [{"logits": np.full((1, 2), value, np.float32)}]


def test_sensitivity_is_the_mean_squared_difference():
    errors = {"query": 0.5, "output": 0.0, "ffn": 2.0}
    result = layer_sensitivities(errors, outputs(1.0), lambda layer: outputs(1.0 + errors[layer]))
    assert result == pytest.approx({"query": 0.25, "output": 0.0, "ffn": 4.0})


def test_broken_models_and_values_that_are_no_numbers_are_the_worst():
    given = {"broken": None, "nan": outputs(math.nan)}
    assert layer_sensitivities(given, outputs(0.0), given.get) == {"broken": math.inf, "nan": math.inf}


def test_half_of_the_layers_may_return_worst_first():
    assert worst_first({"a": 1.0, "b": 3.0, "c": 2.0, "d": 0.5}) == ["b", "c"]
    assert worst_first({"only": 1.0}) == ["only"]


def test_many_layers_are_not_tried_one_by_one():
    assert list(growing_counts(37)) == [1, 2, 3, 4, 6, 9, 13, 19, 28, 37]
    assert list(growing_counts(1)) == [1]


def test_the_fewest_tried_layers_that_pass_are_chosen():
    layers = list("abcdefgh")
    assert first_passing(layers, len, lambda count: count >= 5) == (list("abcdef"), 6, 5)
    assert first_passing(layers, len, lambda count: False) == ([], None, 6)
