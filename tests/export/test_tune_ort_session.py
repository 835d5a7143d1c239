"""Short timings: which row is timed, and that calls take turns."""

import numpy as np

from compress.export.tune_ort_session import median_row, median_times


def test_the_row_of_median_length_is_timed_without_padding():
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    ids = np.arange(15).reshape(3, 5)
    row = median_row([{"input_ids": ids, "attention_mask": mask, "row": np.arange(3)}])
    assert row["input_ids"].tolist() == [[10, 11, 12]]
    assert set(row) == {"input_ids", "attention_mask"}


def test_calls_take_turns():
    called: list[str] = []
    times = median_times([lambda: called.append("a"), lambda: called.append("b")])
    assert len(times) == 2
    assert called == ["a", "b"] * (len(called) // 2)
