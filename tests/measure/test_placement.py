from compress.measure.placement import choose

PAIRED = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"}


def test_physical_cores_come_before_their_second_threads():
    assert choose(2, range(8), PAIRED) == (6, 7)
    assert choose(4, range(8), PAIRED) == (4, 5, 6, 7)
    assert choose(5, range(8), PAIRED) == (3, 4, 5, 6, 7)


def test_only_allowed_cores_are_taken():
    assert choose(2, [1, 5], PAIRED) == (1, 5)
    assert choose(1, [0, 2], {0: "0", 2: "2"}) == (2,)
