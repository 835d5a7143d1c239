"""Malformed data files: each error names its own cause."""

import io
import zipfile

import numpy as np
import pytest

from compress.data.loading.data_digest import find_files
from compress.data.loading.file_columns import check_columns
from compress.data.loading.raw_rows import file_rows
from compress.data.splits.prepare_splits import prepare_splits
from compress.errors import DataError
from compress.recipe.task_schema import Data, Task
from compress.tasks.parsing.columns import MissingColumn


def read(path, content, **data):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(file_rows(path, Data.model_validate({"train": str(path), **data}), "train"))


def test_a_header_of_20000_columns_is_read(tmp_path):
    columns = [f"c{number}" for number in range(20_000)]
    (row,) = read(tmp_path / "a.csv", ",".join([*columns, "text", "label"]) + "\n" + ",".join("x" * 20_002) + "\n")
    with pytest.raises(DataError, match="several columns are named 'c5'"):
        read(tmp_path / "b.csv", ",".join([*columns, "c5"]) + "\n")
    with pytest.raises(DataError, match=r"has 1 fields where 20000 are expected \(c0, .* …\)"):
        read(tmp_path / "c.csv", ",".join(columns) + "\nx\n")
    assert len(row.values) == 20_002


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_repeated_header_is_refused(tmp_path, name):
    between = "," if name.endswith("csv") else "\t"
    lines = [between.join(line) for line in (("text", "label"), ("one", "a"), ("text", "label"))]
    with pytest.raises(DataError, match=r"row 2 \(line 3\) repeats the header") as error:
        read(tmp_path / name, "\n".join(lines) + "\n")
    assert "concatenated" in error.value.hint


def test_a_row_of_column_numbers_is_no_header(tmp_path):
    assert len(read(tmp_path / "a.tsv", "one\ta\n0\t1\n", header=False)) == 2
    assert len(read(tmp_path / "b.tsv", "text\ntext\n")) == 1


def test_parquet_with_two_columns_of_one_name_is_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = arrow.table([arrow.array(["one"]), arrow.array(["two"])], names=["text", "text"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="several columns are named 'text'"):
        list(file_rows(tmp_path / "a.parquet", Data(train="a.parquet"), "train"))


@pytest.fixture
def damaged(tmp_path):
    """A parquet file of texts and labels, with two columns that Python cannot read."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts, count = [f"text {number}" for number in range(40)], 40
    broken = arrow.StringArray.from_buffers(
        count, arrow.py_buffer(np.arange(count + 1, dtype=np.int32).tobytes()), arrow.py_buffer(b"\xff" * count)
    )
    late = arrow.array([2**60] * count, arrow.timestamp("us"))
    table = arrow.table({"text": texts, "label": ["a", "b"] * 20, "note": broken, "when": late})
    parquet.write_table(table, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def damaged_task(path, **settings):
    return Task(kind="classification", data={"train": str(path), "test_share": 0.2, "select_share": 0.2}, **settings)


def test_columns_of_parquet_that_the_task_does_not_name_are_not_read(damaged, tmp_path):
    check_columns(damaged_task(damaged))
    assert prepare_splits(damaged_task(damaged), 0, tmp_path).labels == ("a", "b")
    with pytest.raises(MissingColumn, match="no column 'body'; the columns are 'text', 'label', 'note', 'when'"):
        check_columns(damaged_task(damaged, text="body"))


@pytest.mark.parametrize("column", ["note", "when"])
def test_values_of_parquet_that_cannot_be_read_name_file_and_column(damaged, tmp_path, column):
    with pytest.raises(DataError, match=rf"a\.parquet, rows 1 to 40: column '{column}' cannot be read"):
        prepare_splits(damaged_task(damaged, text=column), 0, tmp_path)


def test_a_field_beyond_the_limit_of_csv_is_named_as_such(tmp_path):
    (row,) = read(tmp_path / "a.csv", 'text,label\n"' + "x" * 200_000 + '",a\n')
    assert len(row.values["text"]) == 200_000
    with pytest.raises(DataError, match=r"line 2: the quotes do not close .* longer than 16,777,216 char") as error:
        read(tmp_path / "a.csv", 'text,label\n"' + "x" * 17_000_000 + '",a\n')
    assert "jsonl and parquet hold longer fields" in error.value.hint


@pytest.mark.parametrize(
    ("name", "header", "hint"),
    [
        ("a.tsv", "text,label", "commas: set task.data.format: csv"),
        ("a.tsv", "text;label", "semicolons: set task.data.format: csv"),
        ("a.tsv", "text|label", "bars: set task.data.format: csv"),
    ],
)
def test_columns_that_were_read_as_one_are_recognised(tmp_path, name, header, hint):
    path = tmp_path / name
    path.write_text(f"{header}\none\n")
    task = Task(kind="classification", text=("text",), data={"train": str(path), "test_share": 0.1})
    with pytest.raises(DataError, match="there is no column 'text'") as error:
        check_columns(task)
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("content", "name"),
    [(None, "a zip archive"), (b"PAR1....", "a parquet file"), (b"\xfd7zXZ\x00", "an xz archive")],
)
@pytest.mark.parametrize("file", ["a.csv", "a.jsonl", "a.json", "a.conll"])
def test_an_archive_with_a_text_name_is_named_as_such(tmp_path, content, name, file):
    if content is None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("a.csv", "text,label\none,a\n")
        content = buffer.getvalue()
    with pytest.raises(DataError, match=f"is {name} where a text file is expected"):
        read(tmp_path / file, content)


@pytest.mark.parametrize("label", ["nan", "NaN", "inf", "-inf", "Infinity"])
@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_nan_and_infinity_are_no_classes(tmp_path, label, kind):
    def cell(name):
        return f'"[""{name}""]"' if kind == "multi_label" else name

    lines = [f"text {number},{cell(name)}" for number, name in enumerate(["a", "b", label, "a", "b", "a"])]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    task = {"kind": kind, "data": {"train": str(path), "test": str(path), "select": str(path)}}
    with pytest.raises(DataError, match="is no class: a missing or overflowed number"):
        prepare_splits(Task.model_validate(task), 0, tmp_path)


def test_classes_that_the_recipe_names_may_be_called_anything(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\none,nan\ntwo,b\nthree,nan\n")
    data = {"train": str(path), "test": str(path), "select": str(path)}
    task = Task.model_validate({"kind": "classification", "labels": ["nan", "b"], "data": data})
    assert prepare_splits(task, 0, tmp_path).per_class["train"] == {"nan": 2, "b": 1}


@pytest.mark.parametrize("name", ["x" * 300 + ".csv", "a\0b.csv"])
def test_a_file_name_that_no_system_accepts_is_a_plain_error(name):
    data = Data.model_construct(train=name)
    with pytest.raises(DataError, match=r"task\.data\.train"):
        find_files(data)
