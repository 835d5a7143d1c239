"""What all kinds share of their rows."""

import pytest

from compress.tasks.base import evenly_spaced


@pytest.mark.parametrize(("count", "most"), [(0, 4), (1, 4), (4, 4), (5, 4), (7, 4), (1_000, 512), (1_500, 512)])
def test_a_sample_is_spread_over_all_rows(count, most):
    rows = [{"number": number} for number in range(count)]
    found = [row["number"] for row in evenly_spaced(rows, most)]
    assert len(set(found)) == min(count, most)
    distances = {right - left for left, right in zip(found, [*found[1:], count], strict=False)}
    assert not count or found[0] == 0
    assert max(distances, default=0) - min(distances, default=0) <= 1
