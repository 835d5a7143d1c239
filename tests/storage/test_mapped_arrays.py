"""Files that are read through a map."""

import numpy as np
import pytest

from compress.data.splits import row_store
from compress.data.splits.row_store import RowWriter, StoredRows
from compress.storage import mapped_arrays
from compress.storage.mapped_arrays import ArrayWriter, MappedArray, map_file, release_pages


def test_what_was_let_go_of_is_read_again(tmp_path):
    values = np.arange(100_000)
    values.tofile(tmp_path / "values")
    pages = map_file(tmp_path / "values")
    for _ in range(2):
        assert np.array_equal(np.frombuffer(pages, values.dtype), values)
        release_pages(pages)


def test_an_empty_file_has_no_map(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert map_file(tmp_path / "empty") is None
    release_pages(None)


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<i4", "<i8"])
def test_numbers_are_read_as_they_were_written(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(mapped_arrays, "BUFFERED", 7)
    with ArrayWriter(tmp_path / "values", dtype) as writer:
        for number in range(20):
            writer.extend([number, 2 * number])
        with pytest.raises(OverflowError):
            writer.extend([1 << 64])
    written = MappedArray(tmp_path / "values", dtype, columns=2)
    assert written.values.dtype == dtype
    assert written.values.tolist() == [[number, 2 * number] for number in range(20)]
    assert [len(block) for block in written.blocks()] == [7, 7, 6]


def test_rows_are_the_same_after_they_were_let_go_of(tmp_path, monkeypatch):
    monkeypatch.setattr(row_store, "RELEASE_AFTER", 50)
    with RowWriter(tmp_path, "train") as writer:
        for number in range(20):
            writer.add({"text": f"row {number}"})
    rows = StoredRows(tmp_path, "train")
    assert [row["text"] for row in rows] == [f"row {number}" for number in range(20)]
    assert rows[3]["text"] == "row 3"
