"""Raw rows of files: every format, and every way in which a file can be wrong."""

import csv
import gzip
import json

import pytest

from compress.data.loading.raw_rows import LINE, file_rows, format_of
from compress.errors import DataError
from compress.recipe.task_schema import Data


def read(path, role="train", **settings):
    return list(file_rows(path, Data(train=str(path), **settings), role))


def values(path, role="train", **settings):
    return [dict(row.values) for row in read(path, role, **settings)]


ROWS = [{"text": "one, two", "label": "a"}, {"text": 'three "four"', "label": "b"}]
CSV = 'text,label\n"one, two",a\n"three ""four""",b\n'
TSV = 'text\tlabel\none, two\ta\nthree "four"\tb\n'
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.mark.parametrize(("name", "content"), [("a.csv", CSV), ("a.tsv", TSV), ("a.jsonl", JSONL), ("a.ndjson", JSONL)])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_formats_gzip_and_byte_order_marks(write, name, content, packed, mark):
    content = mark + content.encode()
    path = write(f"{name}.gz" if packed else name, gzip.compress(content) if packed else content)
    assert values(path) == ROWS


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert values(tmp_path / "a.parquet") == ROWS
    assert read(tmp_path / "a.parquet")[1].where.endswith("a.parquet, row 2")


def test_rows_have_their_location(write):
    assert read(write("a.tsv", TSV))[1].where.endswith("a.tsv, row 2 (line 3)")
    quoted = write("a.csv", 'text,label\n"two\nlines",a\nx,b\n')
    assert [row.where.rpartition(",")[2] for row in read(quoted)] == [" row 1 (line 2)", " row 2 (line 4)"]
    assert read(quoted)[0].values["text"] == "two\nlines"


def test_quotes_in_tsv_are_text_by_default(write):
    path = write("a.tsv", 'text\tlabel\n"x" y\ta\n"z\tb\n')
    assert [row["text"] for row in values(path)] == ['"x" y', '"z']
    assert values(write("b.tsv", 'text\tlabel\n"x\ty"\ta\n'), quoting=True) == [{"text": "x\ty", "label": "a"}]
    assert values(write("b.csv", 'text,label\n"x",a\n'), quoting=False) == [{"text": '"x"', "label": "a"}]


def test_only_line_feeds_end_rows(write):
    content = "text\tlabel\r\na\u2028b\x0b\x0c\x85 \rc\ta\r\n"
    assert values(write("a.tsv", content)) == [{"text": "a\u2028b\x0b\x0c\x85 \rc", "label": "a"}]
    assert values(write("a.jsonl", '{"text": "a\u2028b"}\n')) == [{"text": "a\u2028b"}]


def test_files_without_header(write):
    path = write("a.tsv", "one\ta\ntwo\tb\n")
    assert values(path, header=False)[0] == {"0": "one", "1": "a"}
    assert values(path, header=["text", "label"])[1] == {"text": "two", "label": "b"}


def test_one_header_per_role(write):
    path = write("a.tsv", "one\ta\ntwo\tb\n")
    header = {"test": ["text", "label"]}
    assert len(values(path, "test", header=header)) == 2
    assert values(path, "train", header=header) == [{"one": "two", "a": "b"}]


def test_columns_behind_those_that_matter(write):
    path = write("a.tsv", "one\ta\textra\ntwo\tb\n")
    assert values(path, header=["text", "label", "..."])[0] == {"text": "one", "label": "a"}
    with pytest.raises(DataError, match=r"row 1 \(line 1\) has 3 fields where 2 are expected"):
        read(path, header=["text", "label"])
    with pytest.raises(DataError, match=r"row 1 \(line 1\) has 3 fields where 4"):
        read(path, header=["text", "label", "x", "y", "..."])


def test_other_encodings(write):
    path = write("a.tsv", "text\tlabel\nnaïve\ta\n".encode("latin-1"))
    assert values(path, encoding="latin-1")[0]["text"] == "naïve"
    wide = write("b.tsv", "text\tlabel\nnaïve\ta\n".encode("utf-16"))
    assert values(wide, encoding="utf-16")[0]["text"] == "naïve"


def test_bytes_that_are_not_utf8_name_line_and_byte(write):
    with pytest.raises(DataError, match="line 3: byte 0xef at character 4 is not utf-8") as fault:
        read(write("a.tsv", b"text\tlabel\nok\ta\nna\x20\xefve\tb\n"))
    assert "latin-1" in fault.value.hint
    with pytest.raises(DataError, match="line 1: byte 0xff"):
        read(write("b.tsv", "text\tlabel\nx\ta\n".encode("utf-16")))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_nul_bytes_name_their_line(write, name):
    with pytest.raises(DataError, match="line 2 holds a NUL byte"):
        read(write(name, b"text,label\nfi\x00ne,a\n".replace(b",", b"," if name == "a.csv" else b"\t")))


def test_a_cut_wide_encoding(write):
    with pytest.raises(DataError, match="is not utf-16"):
        read(write("a.tsv", "text\tlabel\nx\ta\n".encode("utf-16")[:-1]), encoding="utf-16")


@pytest.mark.parametrize("encoding", ["utf-99", "hex", "rot13", "undefined", "a\0b"])
def test_unknown_encodings(write, encoding):
    with pytest.raises(DataError, match="no text encoding is called"):
        read(write("a.tsv", TSV), encoding=encoding)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.csv.gz", "a.tsv.gz"])
def test_empty_files(write, name):
    with pytest.raises(DataError, match=rf"{name} (is empty|has no rows)"):
        read(write(name, gzip.compress(b"") if name.endswith("gz") else b""))


def test_a_header_and_nothing_else(write):
    with pytest.raises(DataError, match="has no rows"):
        read(write("a.csv", "text,label\n"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\tlabel\none\ta\ntwo\n", r"row 2 \(line 3\) has 1 fields where 2 are expected \(text, label\)"),
        ("text\tlabel\none\ta\tx\n", r"row 1 \(line 2\) has 3 fields"),
        ("text\tlabel\none\ta\n\ntwo\tb\n", "line 3 is empty but not at the end"),
        ("text\ttext\none\ta\n", "several columns are named 'text'"),
    ],
)
def test_rows_that_do_not_fit(write, content, message):
    with pytest.raises(DataError, match=message):
        read(write("a.tsv", content))


def test_empty_lines_at_the_end_are_no_rows(write):
    assert len(values(write("a.tsv", TSV + "\n\r\n"))) == 2
    assert len(values(write("a.csv", CSV + "\n\n"))) == 2
    assert len(values(write("a.jsonl", JSONL + "\n \n"))) == 2


@pytest.mark.parametrize("content", ['text,label\n"one,a\ntwo,b\n', 'text,label\n"one"x,a\n'])
def test_quotes_that_do_not_close(write, content):
    with pytest.raises(DataError, match=r"line 2: the quotes do not close") as fault:
        read(write("a.csv", content))
    assert "quoting: false" in fault.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\n{"a": 1\n', r"row 2 \(line 2\) is not JSON"),
        ('[{"a": 1}]\n', "is a JSON list where an object is expected"),
        ("3\n", "is a JSON int"),
        ('{"a": 1, "a": 2}\n', "the key 'a' occurs twice"),
        ("[" * 100_000 + "\n", "is not JSON"),
        ('{"a": ' + "9" * 5000 + "}\n", "is not JSON"),
        ('{"a": 1}\n\n{"a": 1}\n', "line 2 is empty but not at the end"),
    ],
)
def test_lines_that_are_no_objects(write, content, message):
    with pytest.raises(DataError, match=message):
        read(write("a.jsonl", content))


def test_broken_gzip(write):
    packed = gzip.compress((TSV + "".join(f"{number**3} text\ta\n" for number in range(3000))).encode())
    with pytest.raises(DataError, match="broken gzip"):
        read(write("a.tsv.gz", packed[:-20]))
    with pytest.raises(DataError, match="broken gzip"):
        read(write("b.tsv.gz", packed[:60] + b"garbage" + packed[67:]))
    with pytest.raises(DataError, match=r"called \.gz but is not gzip"):
        read(write("c.tsv.gz", TSV))


def test_a_broken_parquet_file(write):
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        read(write("a.parquet", b"PAR1 nonsense"))


@pytest.mark.parametrize("name", ["a", "a.xlsx.gz", "a.gz"])
def test_unknown_file_name_extensions_are_refused(write, name):
    with pytest.raises(DataError, match="unknown file name extension"):
        format_of(write(name, TSV))
    assert values(write("a.txt", TSV), format="tsv") == ROWS


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_of_a_csv_is_recognised(write, delimiter):
    path = write("a.csv", CSV.replace(",", delimiter).replace(f"one{delimiter}", "one,"))
    assert values(path) == ROWS
    assert values(path, role="unlabelled") == ROWS
    assert values(write("b.csv", f'"text"{delimiter}"label"\n"one"{delimiter}"a"\n')) == [{"text": "one", "label": "a"}]
    assert values(write("c.csv", f"one{delimiter}a\n"), header=["text", "label"]) == [{"text": "one", "label": "a"}]
    assert values(write("d.csv", f"one{delimiter}a\ntwo{delimiter}b\n"), header=False)[1] == {"0": "two", "1": "b"}


def test_the_delimiter_of_a_csv_with_long_fields_is_recognised(write):
    before = csv.field_size_limit(131_072)
    try:
        found = values(write("t.csv", f"text;label\n{'a, ' * 60_000};x\nb;y\n"))
    finally:
        csv.field_size_limit(max(before, csv.field_size_limit()))
    assert [row["label"] for row in found] == ["x", "y"]


def test_other_delimiters_within_the_texts_of_a_csv_are_text(write):
    assert values(write("a.csv", "text,label\none; two,a\nthree; four,b\n"))[0] == {"text": "one; two", "label": "a"}
    assert values(write("b.csv", "text\none; two\nthree; four\n"))[0] == {"text": "one; two"}
    assert values(write("c.csv", "text;label, final\none, two;a\nthree;b\n"))[0] == {
        "text": "one, two",
        "label, final": "a",
    }
    assert values(write("d.csv", "one; two,a\nthree; four,b\n"), header=False)[0] == {"0": "one; two", "1": "a"}
    with pytest.raises(DataError, match=r"row 2 .* has 3 fields where 2 are expected"):
        read(write("e.csv", "text;label\none;a\ntwo;b;c\n"))


@pytest.mark.parametrize("header", [False, ["0", "1"]])
@pytest.mark.parametrize("text", ["film 4 was fine;4,4", "good, film 4;pos", "film 4;4,5", "7;good, bad, or so"])
def test_commas_within_texts_and_numbers_separate_no_columns(write, header, text):
    rows = values(write("a.csv", f"{text}\n" * 3), header=header)
    assert rows == [dict(zip("01", text.split(";"), strict=True))] * 3


@pytest.mark.parametrize("header", [False, ["text", "label"]])
def test_two_delimiters_that_fit_alike_are_refused(write, header):
    with pytest.raises(DataError, match=r"a\.csv: its columns may be separated by ',' and ';': both fit") as fault:
        read(write("a.csv", "one;two,a\nthree;four,b\n"), header=header)
    assert "a line of column names" in fault.value.hint
    assert values(write("c.csv", "one\ntwo\n"), header=["text"]) == [{"text": "one"}, {"text": "two"}]
    assert values(write("b.csv", "text,a;b\none;two,a\n"))[0] == {"text": "one;two", "a;b": "a"}


def test_lines_of_a_text_file_are_rows(write):
    content = "one, two\r\n\nthree\tfour\n"
    for path in (write("a.txt", content), write("b.txt.gz", gzip.compress(content.encode()))):
        assert [row.values for row in read(path, role="unlabelled")] == [{LINE: "one, two"}, {LINE: "three\tfour"}]
        assert read(path, role="unlabelled")[1].where.endswith("line 3")


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "a.tsv")
