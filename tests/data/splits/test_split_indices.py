"""Tests of stratified sampling."""

from collections import Counter

import numpy as np
import pytest

from compress.data.splits.split_indices import stratified_sample

SORTED = ["a"] * 700 + ["b"] * 200 + ["c"] * 99 + ["d"]


def test_classes_have_their_share_and_rare_ones_a_row():
    drawn = stratified_sample(SORTED, 100, seed=0)
    assert Counter(SORTED[index] for index in drawn) == {"a": 70, "b": 20, "c": 9, "d": 1}
    assert np.all(np.diff(drawn) > 0)


def test_the_draw_depends_on_the_seed_alone():
    assert stratified_sample(SORTED, 50, 3).tolist() == stratified_sample(SORTED, 50, 3).tolist()
    assert stratified_sample(SORTED, 50, 3).tolist() != stratified_sample(SORTED, 50, 4).tolist()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 999, 1000, 5000])
def test_the_sample_has_the_requested_size(count):
    assert len(stratified_sample(SORTED, count, 0)) == min(count, len(SORTED))


def test_rows_without_classes_are_drawn_from_the_full_range():
    drawn = stratified_sample([0] * 1000, 128, 1)
    assert len(set(drawn.tolist())) == 128
    assert drawn.max() > 900


def test_more_classes_than_rows_takes_the_largest_classes():
    labels = [*"aaabbcc", *map(str, range(50))]
    assert {labels[index] for index in stratified_sample(labels, 3, 0)} == {"a", "b", "c"}


def test_no_rows_give_no_sample():
    assert stratified_sample([], 5, 0).tolist() == []
