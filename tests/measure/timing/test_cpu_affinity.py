import pytest

from compress.measure.timing.cpu_affinity import least_loaded, neighbour_groups, parse_core_seconds

PAIRED = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"}


def test_physical_cores_come_before_their_second_threads():
    assert least_loaded(2, range(8), PAIRED, {}) == (6, 7)
    assert least_loaded(4, range(8), PAIRED, {}) == (4, 5, 6, 7)
    assert least_loaded(5, range(8), PAIRED, {}) == (3, 4, 5, 6, 7)


def test_only_allowed_cores_are_used():
    assert least_loaded(2, [1, 5], PAIRED, {}) == (1, 5)
    assert least_loaded(1, [0, 2], {0: "0", 2: "2"}, {}) == (2,)


def test_busy_cores_are_avoided():
    assert least_loaded(1, range(8), PAIRED, {7: 90.0}) == (6,)
    assert least_loaded(1, range(8), PAIRED, {3: 90.0}) == (6,)  # its other hardware thread is as good as busy
    assert least_loaded(2, [0, 1], {0: "0", 1: "1"}, {1: 100.0}) == (0, 1)
    assert least_loaded(1, [0, 1], {0: "0", 1: "1"}, {0: 1.0, 1: 4.0}) == (1,)  # what every system does


def test_sibling_threads_and_other_cores_are_separate_groups():
    assert neighbour_groups((7,), range(8), PAIRED) == ((3,), (0, 1, 2, 3, 4, 5, 6))
    assert neighbour_groups((0,), [0, 1], {0: "0", 1: "1"}) == ((1,),)
    assert neighbour_groups((0, 1), [0, 1], {0: "0", 1: "1"}) == ()


def test_seconds_of_each_core():
    text = "cpu  1 2 3\ncpu0 10 0 10 80 9 2 3 50 0 0\ncpu1 0 0 0 0 0 0 0 0\ncpuidle x\n"
    assert list(parse_core_seconds(text)) == [0, 1]
    assert parse_core_seconds(text)[0] == pytest.approx((0.25, 0.5))
