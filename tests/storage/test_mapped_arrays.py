"""Files that are read through a map."""

import numpy as np
import pytest

from compress.data.splits import row_store
from compress.data.splits.row_store import RowWriter, StoredRows
from compress.storage import mapped_arrays
from compress.storage.mapped_arrays import ArrayWriter, MappedArray, RaggedWriter, map_file, release_pages


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


def written(path, values):
    with RaggedWriter(path, values[0]) as writer:
        for value in values:
            writer.add(value)
    return writer.open()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([[1, 2], [], [3, -4, 5]], "i"),
        ([[], [7], (8, 9)], "i"),
        ([[0.5], [], [1.5, 2.5]], "f"),
    ],
)
def test_lists_of_different_lengths_are_read_as_they_were_written(tmp_path, values, dtype):
    lists = written(tmp_path / "lists", values)
    assert [lists[index].tolist() for index in range(len(values))] == [list(value) for value in values]
    assert lists.values.dtype.char == dtype
    assert lists.lengths.tolist() == [len(value) for value in values]
    assert not lists.is_scalar


@pytest.mark.parametrize(("values", "kind"), [([4, 0, -6], int), ([0.25, 8.0], float)])
def test_one_number_each_is_read_as_a_number(tmp_path, values, kind):
    numbers = written(tmp_path / "numbers", values)
    assert [numbers[index] for index in range(len(values))] == values
    assert all(type(numbers[index]) is kind for index in range(len(values)))
    assert (numbers.is_scalar, numbers.lengths.tolist()) == (True, [1] * len(values))


def test_a_file_of_another_length_than_its_index_is_refused(tmp_path):
    lists = written(tmp_path / "lists", [[1, 2], [3]])
    for lengths in ([2], [2, 2]):
        with pytest.raises(ValueError, match=f"holds 3 numbers where its index gives {sum(lengths)}"):
            type(lists)(tmp_path / "lists", "i", np.array(lengths), is_scalar=False)


def test_arrays_of_the_same_lengths_share_them(tmp_path):
    first, same = written(tmp_path / "first", [[1, 2], [3]]), written(tmp_path / "same", [[5, 6], [7]])
    other, single = written(tmp_path / "other", [[1], [2, 3]]), written(tmp_path / "single", [1, 2])
    for array in (same, other, single):
        array.share_lengths(first)
    assert same.lengths is first.lengths
    assert [array.lengths is first.lengths for array in (other, single)] == [False, False]
    assert [same[index].tolist() for index in (0, 1)] == [[5, 6], [7]]
    assert [other[index].tolist() for index in (0, 1)] == [[1], [2, 3]]


def test_what_is_buffered_is_written_only_where_the_block_ends_well(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_arrays, "BUFFERED", 2)
    path = tmp_path / "values"

    def write_and_fail():
        with ArrayWriter(path, "u1") as writer:
            writer.extend([1, 2])
            assert path.stat().st_size == 0
            writer.extend([3])
            writer.extend([4])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert MappedArray(path, "u1").values.tolist() == [1, 2, 3]
