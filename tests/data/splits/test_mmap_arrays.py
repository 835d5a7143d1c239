"""Files that are read through a map."""

import numpy as np

from compress.data.splits import row_store
from compress.data.splits.mmap_arrays import map_file, release_pages
from compress.data.splits.row_store import RowWriter, StoredRows


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


def test_rows_are_the_same_after_they_were_let_go_of(tmp_path, monkeypatch):
    monkeypatch.setattr(row_store, "RELEASE_AFTER", 50)
    with RowWriter(tmp_path, "train") as writer:
        for number in range(20):
            writer.add({"text": f"row {number}"})
    rows = StoredRows(tmp_path, "train")
    assert [row["text"] for row in rows] == [f"row {number}" for number in range(20)]
    assert rows[3]["text"] == "row 3"
