"""Turns and sessions as a run would find them."""

import pytest

from benchmarks.harness.harness_results import Pairing, Row
from compress.measure.result_base import Score


@pytest.fixture
def row():
    return Row(key="one", part="bare", what="one thing", goal="holds")


@pytest.fixture
def session():
    """A session whose ratio is ``value`` give or take ``half``; None: one in which a model failed."""

    def make(value, half=0.01, case="fp32", **facts):
        ratio = None if value is None else Score(value=value, low=value - half, high=value + half)
        return Pairing(case=case, ratio=ratio, **facts)

    return make
