"""`compress predict --file IN --to OUT`: formats, resuming, shards, and everything that may be wrong with a file."""

import csv
import errno
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from filelock import FileLock

import compress
from compress.bulk import answer_part, bulk_command, read_table, run_bulk_job
from compress.bulk.bulk_job import BulkJob
from compress.bulk.workers import run_jobs
from compress.bulk.write_table import merge_parts as merge
from compress.cli import main
from compress.errors import DataError
from tests.conftest import WORDS
from tests.without_torch import light

DRAWN = WORDS[4:]
finish = BulkJob.finish


def texts(count: int, longest: int = 12) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(DRAWN, k=draw.randint(1, longest))) for _ in range(count)]


def write_csv(path: Path, rows: list[str], more: str = "id") -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow([more, "text"])
        writer.writerows((f"n{number}", text) for number, text in enumerate(rows))
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def predict(*arguments: object, workers: int = 1) -> int:
    return main(["predict", *map(str, arguments), *(["--workers", str(workers)] if "--to" in arguments else [])])


@pytest.fixture
def small_parts(monkeypatch) -> None:
    """Parts of five rows. Processes that answer them get them as they are."""
    monkeypatch.setattr(read_table, "PART_ROWS", 5)
    monkeypatch.setattr(read_table, "LEAST_ROWS", 5)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "in.csv", [*texts(20), "", *texts(3)])


def test_a_quote_that_is_open_in_the_middle_of_a_row_is_what_is_wrong(model, tmp_path, capsys) -> None:
    (tmp_path / "in.csv").write_text('id,text,stars\n1,"Great movie,5\n2,bad,1\n')
    assert predict(model, "--file", tmp_path / "in.csv", "--to", tmp_path / "out.csv") == 1
    assert "its quotes do not close" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_quote_that_never_closes_is_a_row_that_cannot_be_read(end, model, tmp_path, capsys) -> None:
    file = tmp_path / "in.csv"
    file.write_text(f'id,text\n0,"a good\nfilm"\n1,"Great movie\n2,bad\n3,good{end}')
    assert predict(model, "--file", file, "--to", tmp_path / "out.csv") == 1
    assert (
        "in.csv, row 2 (line 4): its quotes do not close, or do not enclose a field, so that it takes up 3 lines"
        in " ".join(capsys.readouterr().err.split())
    )
    assert predict(model, "--file", file, "--to", tmp_path / "out.csv", "--bad-rows", "keep") == 0
    first, second = read_csv(tmp_path / "out.csv")
    assert first["label"]
    assert (second["label"], "do not close" in second["error"]) == ("", True)


@pytest.mark.parametrize(("head", "fault"), [("", "it is empty"), ('id,"text', "its quotes do not close")])
def test_a_first_line_without_names_is_one_message(head, fault, model, tmp_path, capsys) -> None:
    (tmp_path / "in.csv").write_text(f"{head}\n1,good\n2,bad\n")
    assert predict(model, "--file", tmp_path / "in.csv", "--to", tmp_path / "out.csv") == 1
    assert f"in.csv, line 1: {fault}" in " ".join(capsys.readouterr().err.split())


def test_lines_of_one_text_give_embeddings_of_a_model_that_compares_two(exported, tmp_path, capsys) -> None:
    model = exported("similarity")
    (tmp_path / "one.txt").write_text("a good film\nbad\n")
    (tmp_path / "two.txt").write_text("\na good film\tbad\ngood\n")
    (tmp_path / "mixed.txt").write_text("a good film\ngood\tbad\n")
    assert predict(model, "--file", tmp_path / "one.txt", "--to", tmp_path / "out.npy") == 0
    expected = [answer["embedding"] for answer in compress.open(model).predict(["a good film", "bad"])]
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)
    assert predict(model, "--file", tmp_path / "two.txt", "--to", tmp_path / "out.csv") == 1
    assert "row 3 (line 3): it has 1 text where 2 are expected" in " ".join(capsys.readouterr().err.split())
    assert predict(model, "--file", tmp_path / "two.txt", "--to", tmp_path / "out.csv", "--bad-rows", "keep") == 0
    empty, first, second = read_csv(tmp_path / "out.csv")
    assert float(first["score"])
    assert (empty["score"], empty["error"]) == ("", "")
    assert predict(model, "--file", tmp_path / "mixed.txt", "--to", tmp_path / "mixed.npy") == 1
    assert "row 2 (line 2): it has 2 texts where 1 are expected" in " ".join(capsys.readouterr().err.split())
    assert (second["score"], second["error"]) == ("", "it has 1 text where 2 are expected")


def test_an_object_without_the_column_of_text_is_a_row_wherever_it_is(model, tmp_path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 1}\n{"text": "good", "id": 2}\n')
    assert predict(model, "--file", tmp_path / "in.jsonl", "--to", tmp_path / "out.csv") == 1
    assert predict(model, "--file", tmp_path / "in.jsonl", "--to", tmp_path / "out.csv", "--bad-rows", "keep") == 0
    first, second = read_csv(tmp_path / "out.csv")
    assert (first["label"], second["error"], bool(second["label"])) == ("", "", True)


def test_shards_that_read_a_file_in_another_way_are_refused(model, tmp_path, capsys, small_parts) -> None:
    lines = "\n".join(["text", *texts(20)]) + "\n"
    (tmp_path / "in.txt").write_text(lines)
    (tmp_path / "in.csv").write_text(lines)
    for name, code in (("in.txt", 0), ("in.csv", 2)):
        index = int(name == "in.csv")
        arguments = ("--file", tmp_path / name, "--to", tmp_path / "out.jsonl", "--shard", f"{index}/2")
        assert predict(model, *arguments) == code, capsys.readouterr().err
    assert "another kind of file" in capsys.readouterr().err


def test_a_worker_whose_parent_is_gone_writes_nothing(monkeypatch, model, rows, tmp_path) -> None:
    monkeypatch.setattr(answer_part, "parent_process", lambda: SimpleNamespace(is_alive=lambda: False))
    with pytest.raises(SystemExit):
        predict(model, "--file", rows, "--to", tmp_path / "out.csv")
    assert not list((tmp_path / "out.csv.parts").glob("0*"))


def test_columns_are_kept_and_answers_added(rows: Path, model: Path, tmp_path: Path, capsys, small_parts) -> None:
    assert predict(model, "--file", rows, "--to", tmp_path / "out.csv", "--format", "json") == 0
    found, given = read_csv(tmp_path / "out.csv"), read_csv(rows)
    assert [row["id"] for row in found] == [row["id"] for row in given]
    expected = compress.open(model).predict([row["text"] for row in given])
    assert [row["label"] for row in found] == [row["label"] or "" for row in expected]
    assert found[20]["probability"] == ""
    assert float(found[0]["probability"]) == pytest.approx(expected[0]["probability"], abs=1e-6)
    said = json.loads(capsys.readouterr().out)
    assert (said["rows"], said["empty"], said["bad"]) == (24, 1, 0)
    assert not list(tmp_path.glob("out.csv.parts*"))


@pytest.mark.parametrize("read", ["csv", "tsv", "jsonl", "parquet", "txt"])
@pytest.mark.parametrize("written", ["csv", "jsonl", "parquet"])
def test_every_format_in_every_format(read: str, written: str, model: Path, tmp_path: Path, small_parts) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    lines = [*texts(7), "", "good"]
    path, out = tmp_path / f"in.{read}", tmp_path / f"out.{written}"
    if read == "csv":
        write_csv(path, lines)
    elif read == "tsv":
        path.write_text("id\ttext\n" + "".join(f"n{number}\t{text}\n" for number, text in enumerate(lines)))
    elif read == "jsonl":
        path.write_text("".join(json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(lines)))
    elif read == "parquet":
        parquet.write_table(pyarrow.table({"id": list(range(9)), "text": lines}), path)
    else:
        path.write_text("".join(f"{text}\n" for text in lines))
    assert predict(model, "--file", path, "--to", out) == 0
    if written == "csv":
        found = [{name: value or None for name, value in row.items()} for row in read_csv(out)]
    elif written == "jsonl":
        found = [json.loads(line) for line in out.read_text().splitlines()]
    else:
        found = parquet.read_table(out).to_pylist()
    expected = compress.open(model).predict(lines)
    assert [row["label"] for row in found] == [row["label"] for row in expected]
    assert [row["text"] or "" for row in found] == lines
    if read in ("jsonl", "parquet") and written != "csv":
        assert [row["id"] for row in found] == list(range(9))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["multi_label", "token_classification", "question_answering", "multiple_choice"])
@pytest.mark.parametrize("written", ["csv", "jsonl", "parquet"])
def test_answers_of_many_values(kind: str, written: str, exported, tmp_path: Path, small_parts) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    folder, out = exported(kind), tmp_path / f"out.{written}"
    given = {"question": "is it good", "choices": ["good", "bad"], "context": "the plot is dull"}
    task = compress.open(folder).task
    rows = [{name: given.get(name, "a fine film") for name in task.text}, dict.fromkeys(task.text, "")] * 4
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert predict(folder, "--file", path, "--to", out) == 0
    expected = compress.predict_table(folder, rows)
    field = compress.BulkPredictor(folder).fields[0]
    if written == "parquet":
        found = [row[field] for row in parquet.read_table(out).to_pylist()]
    elif written == "jsonl":
        found = [json.loads(line)[field] for line in out.read_text().splitlines()]
    else:
        read = [row[field] for row in read_csv(out)]
        found = [json.loads(cell) if cell.startswith("[") else cell or None for cell in read]
    assert found == [row[field] for row in expected]


@pytest.mark.slow
def test_embeddings_as_lists_and_as_npy(exported, tmp_path: Path, small_parts) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    lines = ["", *texts(11), ""]
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    folder = exported("retrieval")
    assert predict(folder, "--file", path, "--to", tmp_path / "out.npy") == 0
    assert predict(folder, "--file", path, "--to", tmp_path / "out.parquet") == 0
    vectors = np.load(tmp_path / "out.npy")
    assert vectors.shape == (13, 8)
    assert np.isnan(vectors[[0, 12]]).all()
    table = parquet.read_table(tmp_path / "out.parquet")
    assert str(table.schema.field("embedding").type) == "list<element: float>"
    assert np.array_equal(np.array(table["embedding"].to_pylist()[1:12], np.float32), vectors[1:12])


def test_npy_of_a_classifier(model: Path, rows: Path, tmp_path: Path, capsys) -> None:
    assert predict(model, "--file", rows, "--to", tmp_path / "out.npy") == 2
    assert ".npy holds embeddings; this model answers label, probability" in capsys.readouterr().err


@pytest.mark.slow
def test_neither_workers_nor_shards_change_a_byte(rows: Path, model: Path, tmp_path: Path, capsys, small_parts) -> None:
    for workers in (1, 3):
        assert predict(model, "--file", rows, "--to", tmp_path / f"{workers}.csv", workers=workers) == 0
    for shard in (2, 0, 1):
        assert predict(model, "--file", rows, "--to", tmp_path / "s.csv", "--shard", f"{shard}/3") == 0
    assert not (tmp_path / "s.csv").exists()
    assert predict(model, "--file", rows, "--to", tmp_path / "s.csv", "--merge") == 0
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "3.csv").read_bytes() == (tmp_path / "s.csv").read_bytes()


def test_a_shard_of_no_rows(rows: Path, model: Path, tmp_path: Path, capsys) -> None:
    assert predict(model, "--file", rows, "--to", tmp_path / "out.csv", "--shard", "1/2") == 0
    assert "shard 1/2 has no rows" in capsys.readouterr().out
    assert predict(model, "--file", rows, "--to", tmp_path / "out.csv", "--merge") == 2
    assert "1 shard of 2 not done: 0/2" in capsys.readouterr().err
    assert predict(model, "--file", rows, "--to", tmp_path / "out.csv", "--shard", "0/2") == 0
    assert predict(model, "--file", rows, "--to", tmp_path / "out.csv", "--merge") == 0
    assert len(read_csv(tmp_path / "out.csv")) == 24


@pytest.mark.parametrize("shard", ["3/3", "1", "a/b", "-1/2", "0/0"])
def test_what_is_no_shard(shard: str, rows: Path, model: Path, tmp_path: Path, capsys) -> None:
    assert predict(model, "--file", rows, "--to", tmp_path / "out.csv", f"--shard={shard}") == 2
    assert "0/16 to 15/16 are the shards of 16" in capsys.readouterr().err


@pytest.mark.slow
def test_shards_of_another_model_or_file(rows: Path, model: Path, exported, tmp_path: Path, capsys) -> None:
    arguments = ["--file", rows, "--to", tmp_path / "out.csv"]
    assert predict(model, *arguments, "--shard", "0/2") == 0
    assert predict(exported("regression"), *arguments, "--shard", "1/2") == 2
    assert "holds parts of another job: another model" in capsys.readouterr().err
    assert predict(exported("regression"), *arguments, "--merge") == 2
    assert "another model" in capsys.readouterr().err
    write_csv(rows, texts(5))
    assert predict(model, *arguments, "--shard", "1/2") == 2
    assert "another content of the file" in capsys.readouterr().err


def test_a_job_that_ended_without_any_answer_can_be_corrected(rows: Path, model: Path, tmp_path: Path, capsys) -> None:
    rows.write_bytes(rows.read_bytes() + b"99,caf\xe9\n")
    arguments = ["--file", rows, "--to", tmp_path / "out.csv"]
    assert predict(model, *arguments) == 1
    message = " ".join(capsys.readouterr().err.split())
    assert "is not utf-8" in message
    assert "--encoding names another one, such as latin-1; --bad-rows keep" in message
    with FileLock(tmp_path / "out.csv.parts" / ".lock-0"):  # as another process that has no answer yet
        assert predict(model, *arguments, "--encoding", "latin-1") == 2
        assert "another process writes" in capsys.readouterr().err
    assert predict(model, *arguments, "--encoding", "latin-1") == 0
    assert len(read_csv(tmp_path / "out.csv")) == 25


def test_the_same_command_goes_on_with_what_is_missing(
    rows: Path, model: Path, tmp_path: Path, small_parts, monkeypatch, capsys
) -> None:
    assert predict(model, "--file", rows, "--to", tmp_path / "whole.csv") == 0

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(run_bulk_job, "merge_parts", full)
        assert predict(model, "--file", rows, "--to", tmp_path / "out.csv") == 1
    assert os.strerror(errno.ENOSPC) in capsys.readouterr().err
    folder = tmp_path / "out.csv.parts"
    assert len(list(folder.glob("*.csv"))) == 5
    (folder / "000002.json").unlink()
    given: list[int] = []

    def counted(start, setup, jobs, count):
        return run_jobs(start, setup, (given.append(job.index) or job for job in jobs), count)

    monkeypatch.setattr(run_bulk_job, "run_jobs", counted)
    assert predict(model, "--file", rows, "--to", tmp_path / "out.csv") == 0
    assert given == [2]
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_an_output_that_exists(rows: Path, model: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    assert predict(model, "--file", rows, "--to", out) == 2
    assert "exists." in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert predict(model, "--file", rows, "--to", out, "--replace") == 0
    assert len(read_csv(out)) == 24


def test_of_several_files_those_that_are_done_are_left(rows: Path, model: Path, tmp_path: Path, capsys, monkeypatch):
    more, out = write_csv(tmp_path / "more.csv", texts(3)), tmp_path / "out"
    command = (model, "--file", rows, more, "--to", out)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(run_bulk_job, "merge_parts", lambda *args: full() if "more" in args[1].name else merge(*args))
        assert predict(*command) == 1
    written = (out / "in.csv").stat().st_mtime_ns
    assert predict(*command) == 0
    assert "in.csv: done before" in capsys.readouterr().err
    assert (out / "in.csv").stat().st_mtime_ns == written
    assert sorted(path.name for path in out.iterdir()) == ["in.csv", "more.csv"]
    assert predict(*command) == 2  # a new command, which would write all of them again
    assert "exists." in capsys.readouterr().err
    assert predict(*command, "--replace") == 0


def test_what_is_done_with_another_model_or_gone_is_answered_again(
    rows: Path, model: Path, tmp_path: Path, monkeypatch
):
    more, out = write_csv(tmp_path / "more.csv", texts(3)), tmp_path / "out"
    command = (model, "--file", rows, more, "--to", out)
    with monkeypatch.context() as patched:
        patched.setattr(BulkJob, "finish", finish_and_fail)
        assert predict(*command) == 1
    assert (out / "in.csv.parts" / "finished").is_file()
    (out / "in.csv").unlink()
    assert predict(*command, "--prefix", "model_") == 0
    assert "model_label" in read_csv(out / "in.csv")[0]
    assert sorted(path.name for path in out.iterdir()) == ["in.csv", "more.csv"]


@pytest.mark.parametrize("options", [[], ["--replace"]])
def test_shards_of_several_files_leave_nothing_beside_the_outputs(options, rows: Path, model: Path, tmp_path: Path):
    more, out = write_csv(tmp_path / "more.csv", texts(3)), tmp_path / "out"
    command = (model, "--file", rows, more, "--to", out)
    for _ in range(2 if options else 1):
        for shard in range(2):
            assert predict(*command, "--shard", f"{shard}/2", *options) == 0
        assert predict(*command, "--merge", *options) == 0
        assert sorted(path.name for path in out.iterdir()) == ["in.csv", "more.csv"]
    assert len(read_csv(out / "in.csv")) == 24


def test_parts_without_what_they_follow_from_are_made_again(rows: Path, model: Path, tmp_path: Path, small_parts):
    assert predict(model, "--file", rows, "--to", tmp_path / "whole.csv") == 0
    parts = tmp_path / "out.csv.parts"
    parts.mkdir()
    (parts / "000000.json").write_text('{"rows": 5, "empty": 0, "bad": 0, "columns": ["id", "text"]}')
    (parts / "000000.csv").write_text("of another model")
    assert predict(model, "--file", rows, "--to", tmp_path / "out.csv") == 0
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def finish_and_fail(job: BulkJob) -> None:
    finish(job)
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_columns_of_all_files_are_checked_before_one_is_answered(rows: Path, model: Path, tmp_path: Path, capsys):
    other = tmp_path / "other.csv"
    other.write_text("id,txt\n1,good\n")
    assert predict(model, "--file", rows, other, "--to", tmp_path / "out") == 2
    assert "other.csv has no column 'text'" in capsys.readouterr().err
    assert not (tmp_path / "out" / "in.csv").exists()


@pytest.mark.parametrize("option", [[], ["--replace"]])
def test_parts_that_another_process_writes_are_left(option, rows: Path, model: Path, tmp_path: Path, capsys) -> None:
    parts = tmp_path / "out.csv.parts"
    parts.mkdir()
    (parts / "job.json").write_text("{")
    with FileLock(parts / ".lock-3"):
        assert predict(model, "--file", rows, "--to", tmp_path / "out.csv", *option) != 0
        assert ("another process writes" if option else "cannot be read") in capsys.readouterr().err
    assert (parts / "job.json").read_text() == "{"


def test_shards_are_not_merged_while_one_is_written(rows: Path, model: Path, tmp_path: Path, capsys) -> None:
    command = (model, "--file", rows, "--to", tmp_path / "out.csv")
    for shard in range(2):
        assert predict(*command, "--shard", f"{shard}/2") == 0
    with FileLock(tmp_path / "out.csv.parts" / ".lock-1"):
        assert predict(*command, "--merge") == 2
        assert "another process writes" in capsys.readouterr().err
    assert predict(*command, "--merge") == 0
    assert len(read_csv(tmp_path / "out.csv")) == 24


@pytest.mark.parametrize("option", [[], ["--bad-rows", "keep"]])
def test_a_column_for_errors_that_exists(option, model: Path, tmp_path: Path, capsys) -> None:
    path = tmp_path / "in.csv"
    path.write_text("text,error\ngood,1\n")
    assert predict(model, "--file", path, "--to", tmp_path / "out.csv", *option) == (2 if option else 0)
    assert ("has a column 'error' already" in capsys.readouterr().err) == bool(option)


def test_a_column_that_exists(model: Path, tmp_path: Path, capsys) -> None:
    path = tmp_path / "in.csv"
    path.write_text("text,label\ngood,1\n")
    assert predict(model, "--file", path, "--to", tmp_path / "out.csv") == 2
    assert "has a column 'label' already" in capsys.readouterr().err
    assert predict(model, "--file", path, "--to", tmp_path / "out.csv", "--prefix", "model_") == 0
    assert list(read_csv(tmp_path / "out.csv")[0]) == ["text", "label", "model_label", "model_probability"]


def test_a_missing_column(model: Path, tmp_path: Path, capsys) -> None:
    path = tmp_path / "in.csv"
    path.write_text("id,txt\n1,good\n")
    assert predict(model, "--file", path, "--to", tmp_path / "out.csv") == 2
    said = capsys.readouterr().err
    assert "has no column 'text'; its columns are id, txt; did you mean txt?" in said
    assert "--text names the column" in said
    assert predict(model, "--file", path, "--to", tmp_path / "out.csv", "--text", "txt") == 0


BAD = {
    "ragged.csv": (b"id,text\n1,good\n2,bad,dull\n3\n4,fine\n", "row 2 (line 3): it has 3 fields where 2 are expected"),
    "bytes.csv": (b"id,text\n1,good\n2,caf\xe9\n3,fine\n4,fine\n", "row 2 (line 3): byte 0xe9 at character 4"),
    "bytes.txt": (b"good\ncaf\xe9\nfine\nbad\n", "row 2 (line 2): byte 0xe9 at character 4 is not utf-8"),
    "broken.jsonl": (
        b'{"text": "good"}\n{"text": \n[1]\n{"text": "fine"}\n',
        "row 2 (line 2): it is not JSON",
    ),
    "half.jsonl": (
        b'{"text": "good"}\n{"text": "\\ud83d"}\n{"text": "bad", "id": ["\\uD83D"]}\n{"text": "\\ud83d\\ude00"}\n',
        "row 2 (line 2): it holds half a character",
    ),
    "other.jsonl": (
        b'{"text": "good"}\n{"txt": "a"}\n{"text": 5}\n{"text": "b"}\n',
        "row 2 (line 2): it has no 'text'",
    ),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_rows_that_cannot_be_read(name: str, model: Path, tmp_path: Path, capsys) -> None:
    content, message = BAD[name]
    path, out = tmp_path / name, tmp_path / "out.csv"
    path.write_bytes(content)
    assert predict(model, "--file", path, "--to", out) == 1
    said = capsys.readouterr().err
    assert message in said
    assert "--bad-rows keep" in said
    assert predict(model, "--file", path, "--to", out, "--bad-rows", "keep", "--replace") == 0
    found = read_csv(out)
    assert len(found) == 4
    assert [row["label"] != "" for row in found] == [not row["error"] for row in found]
    assert found[0]["error"] == ""
    assert found[1]["error"] != ""
    assert f"{sum(row['error'] != '' for row in found)} that could not be read" in capsys.readouterr().out


def test_a_row_of_too_many_fields_loses_none(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(BAD["ragged.csv"][0])
    assert predict(model, "--file", path, "--to", tmp_path / "out.csv", "--bad-rows", "keep") == 0
    assert [row["text"] for row in read_csv(tmp_path / "out.csv")] == ["good", "bad,dull", "", "fine"]


def test_utf16(model: Path, tmp_path: Path, capsys) -> None:
    path = tmp_path / "in.csv"
    path.write_text("id,text\n1,good\n", encoding="utf-16")
    assert predict(model, "--file", path, "--to", tmp_path / "out.csv") == 1
    assert "--encoding names another encoding: utf-16, as its first bytes look" in capsys.readouterr().err
    assert predict(model, "--file", path, "--to", tmp_path / "out.csv", "--encoding", "utf-16") == 0


def test_an_encoding_that_is_none(rows: Path, model: Path, tmp_path: Path, capsys) -> None:
    assert predict(model, "--file", rows, "--to", tmp_path / "out.csv", "--encoding", "utf-9") == 1
    assert "--encoding: no text encoding is called 'utf-9'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": [1, 2]}, "column 'text' holds int64 where text is expected; it has no column of text"),
        ({"text": [1, 2], "title": ["a", "b"]}, "columns of text: title"),
        ({"text": ["a", "b"], "image": [b"1", b"2"]}, "column 'image' holds bytes"),
    ],
)
def test_parquet_of_wrong_types(columns, message: str, model: Path, tmp_path: Path, capsys) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), tmp_path / "in.parquet")
    assert predict(model, "--file", tmp_path / "in.parquet", "--to", tmp_path / "out.csv") == 2
    assert message in capsys.readouterr().err


def test_parquet_keeps_types(model: Path, tmp_path: Path, small_parts) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table(
        {
            "text": texts(12),
            "day": pyarrow.array([18000 + day for day in range(12)], pyarrow.date32()),
            "small": pyarrow.array([None, *range(11)], pyarrow.int8()),
            "image": [b"x"] * 12,
            "parts": [["a", "b"]] * 12,
        }
    )
    parquet.write_table(table, tmp_path / "in.parquet", row_group_size=7)
    assert predict(model, "--file", tmp_path / "in.parquet", "--to", tmp_path / "out.parquet") == 0
    assert parquet.read_table(tmp_path / "out.parquet").drop_columns(["label", "probability"]).equals(table)


def test_objects_with_columns_of_their_own(model: Path, tmp_path: Path, small_parts) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "in.jsonl"
    objects = [{"text": "good", "a": 1}] * 6 + [{"text": "bad", "a": "one", "b": [1, 2]}] * 3
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))
    for name in ("out.csv", "out.parquet"):
        assert predict(model, "--file", path, "--to", tmp_path / name) == 0
    found = read_csv(tmp_path / "out.csv")
    assert list(found[0]) == ["text", "a", "b", "label", "probability"]
    assert [row["a"] for row in found] == ["1"] * 6 + ["one"] * 3
    assert found[8]["b"] == "[1,2]"
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["text", "a", "b", "label", "probability"]
    assert table["a"].to_pylist() == ["1"] * 6 + ["one"] * 3


@pytest.mark.parametrize(
    ("first", "second", "texts_of_both"),
    [
        ({}, {"a": 1}, ("{}", '{"a":1}')),
        ([{}], [{"a": 1}], ("[{}]", '[{"a":1}]')),
        ({"a": {}}, {"a": {}}, ('{"a":{}}', '{"a":{}}')),
        (2**60, 1.5, (str(2**60), "1.5")),
        ([2**60], [1.5], (f"[{2**60}]", "[1.5]")),
    ],
)
def test_values_without_a_type_of_parquet_become_text(
    first, second, texts_of_both, model: Path, tmp_path: Path, small_parts
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": "good", "a": value}) + "\n" for value in [first] * 5 + [second] * 5))
    assert predict(model, "--file", path, "--to", tmp_path / "out.parquet") == 0
    found = parquet.read_table(tmp_path / "out.parquet")["a"].to_pylist()
    assert found == [texts_of_both[0]] * 5 + [texts_of_both[1]] * 5


@pytest.mark.parametrize("target", [["--to", "out.csv"], ["--to", "out.parquet"], []])
def test_parquet_with_columns_of_one_name(target, model: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    monkeypatch.chdir(tmp_path)
    parquet.write_table(pyarrow.table([["good"], [1], [2]], names=["text", "n", "n"]), "in.parquet")
    assert predict(model, "--file", "in.parquet", *target) == 1
    assert "in.parquet: several columns are named 'n'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_a_file_that_changes_while_it_is_read(rows: Path, model: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    states = iter([(1, 1), (1, 2)])
    monkeypatch.setattr(run_bulk_job, "_size_and_time", lambda file: next(states))
    assert predict(model, "--file", rows, "--to", tmp_path / "out.csv") == 1
    assert "changed while it was read" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def test_files_and_patterns_into_a_folder(rows: Path, model: Path, tmp_path: Path, capsys) -> None:
    write_csv(tmp_path / "more.csv", texts(3))
    assert predict(model, "--file", str(tmp_path / "*.csv"), "--to", tmp_path / "out/") == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["in.csv", "more.csv"]
    assert predict(model, "--file", rows, tmp_path / "more.csv", "--to", tmp_path / "two") == 0
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["in.csv", "more.csv"]
    assert predict(model, "--file", tmp_path / "*.tsv", "--to", tmp_path / "out") == 2
    assert "no file matches" in capsys.readouterr().err
    assert predict(model, "--file", str(tmp_path / "*.csv"), "--to", tmp_path / "one.csv") == 2
    assert "2 files are given, so --to names a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--file", "IN"], None),
        (["--to", "out.csv"], "--to out.csv needs --file"),
        (["--file", "IN", "--merge"], "--merge needs --to OUT"),
        (["--file", "IN", "--to", "out.xlsx"], "answers are written to .parquet, .csv, .jsonl, .npy"),
        (["--file", "no.csv", "--to", "out.csv"], "no.csv is not there"),
        (["--file", "IN", "--to", "/dev/null"], "/dev/null exists and is no folder; --to names a folder, or a file"),
        (["--file", "IN", "--to", "in.csv/"], "in.csv/ exists and is no folder"),
        (["--file", "IN", "--to", "in.csv/out.csv"], "out.csv cannot be written"),
        (["--file", "IN", "--to", "/proc/out.csv"], "/proc/out.csv cannot be written"),
        (["--file", "IN", "--to", "out.csv", "a text"], "give texts as arguments or with --file"),
    ],
)
def test_options_that_do_not_go_together(arguments, message, rows: Path, model: Path, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [str(rows) if word == "IN" else word for word in arguments]
    assert predict(model, *words) == (2 if message else 0)
    assert message is None or message in capsys.readouterr().err


def test_a_format_that_is_unknown(model: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "in.xlsx").write_text("x")
    assert predict(model, "--file", tmp_path / "in.xlsx", "--to", tmp_path / "out.csv") == 2
    assert "files of rows end in .parquet, .csv" in capsys.readouterr().err


def test_an_empty_file(model: Path, tmp_path: Path, capsys) -> None:
    for name in ("in.csv", "in.txt", "in.jsonl"):
        (tmp_path / name).write_text("")
        code = predict(model, "--file", tmp_path / name, "--to", tmp_path / f"{name}.csv")
        assert code == 1, name
        assert "empty" in (said := capsys.readouterr().err) or "has no rows" in said


def test_a_long_text(model: Path, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "in.csv", ["good " * 2_000_000, "bad"])
    assert predict(model, "--file", path, "--to", tmp_path / "out.jsonl") == 0
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [len(row["text"]) for row in found] == [10_000_000, 3]


def test_gzip_and_quoted_line_breaks(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.csv.gz"
    path.write_bytes(gzip.compress(b'id;text\n1;"a ""fine""\nfilm"\n\n2;bad\n'))
    assert predict(model, "--file", path, "--to", tmp_path / "out.csv") == 0
    found = read_csv(tmp_path / "out.csv")
    assert [row["text"] for row in found] == ['a "fine"\nfilm', "", "bad"]
    assert [bool(row["label"]) for row in found] == [True, False, True]


def test_remote_files(rows: Path, model: Path, tmp_path: Path, monkeypatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    with fsspec.open("memory://bucket/in.csv", "wb") as stream:
        stream.write(rows.read_bytes())
    assert predict(model, "--file", "memory://bucket/in.csv", "--to", "memory://bucket/out.csv") == 0
    assert predict(model, "--file", rows, "--to", tmp_path / "out.csv") == 0
    with fsspec.open("memory://bucket/out.csv", "rb") as stream:
        assert stream.read() == (tmp_path / "out.csv").read_bytes()
    assert not list((tmp_path / "cache").glob("bulk/*"))


def test_a_remote_output_that_exists_and_one_that_cannot_be_sent(
    rows: Path, model: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    target = "memory://bucket/sent.csv"
    command = (model, "--file", rows, "--to", target)

    def unreachable(*_: object, **__: object) -> None:
        raise DataError(f"{target} cannot be written")

    with monkeypatch.context() as patched:
        patched.setattr(bulk_command, "_transfer", unreachable)
        assert predict(*command) == 1
    assert predict(*command) == 0
    assert "sent.csv: done before" in capsys.readouterr().err
    with fsspec.open(target, "rb") as stream:
        assert len(stream.read().splitlines()) == 25
    assert predict(*command) == 2
    assert f"{target} exists." in capsys.readouterr().err
    assert predict(*command, "--replace") == 0
    assert not list((tmp_path / "cache").glob("bulk/*"))


def test_what_a_library_of_a_place_raises_is_one_message(model, monkeypatch, capsys):
    fsspec = pytest.importorskip("fsspec")

    class NoCredentialsError(Exception):
        """As botocore has it."""

    def refuse(*_: object) -> None:
        raise NoCredentialsError("Unable to locate credentials")

    monkeypatch.setattr(fsspec, "open", refuse)
    assert predict(model, "--file", "s3://bucket/in.txt") == 1
    assert "s3://bucket/in.txt cannot be read: Unable to locate credentials" in capsys.readouterr().err


def test_lines_of_a_remote_file_are_printed(model: Path, capsys) -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://bucket/lines.txt", "wb") as stream:
        stream.write("schön\n".encode("cp1252"))
    assert predict(model, "--file", "memory://bucket/lines.txt", "--encoding", "cp1252", "--format", "json") == 0
    assert "schön" in json.loads(capsys.readouterr().out)["text"]
    assert predict(model, "--file", "memory://bucket/lines.txt") == 1
    assert "memory://bucket/lines.txt, line 1" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["memory://bucket/no.csv", "nothing://bucket/no.csv"])
def test_remote_files_that_cannot_be_read(url: str, model: Path, tmp_path: Path, capsys) -> None:
    pytest.importorskip("fsspec")
    assert predict(model, "--file", url, "--to", tmp_path / "out.csv") in (1, 2)
    assert "no.csv" in capsys.readouterr().err


def test_a_table_on_the_screen(rows: Path, model: Path, capsys) -> None:
    assert predict(model, "--file", rows) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 24
    assert lines[20] == "no answer"
    assert predict(model, "--file", rows, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["label"] in ("bad", "good")


def test_rows_on_the_screen_that_cannot_be_read_are_kept_and_counted(model: Path, tmp_path: Path, capsys) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(BAD["ragged.csv"][0])
    keep = ("--file", path, "--bad-rows", "keep")
    assert predict(model, *keep) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1] == "no answer\tit has 3 fields where 2 are expected (id, text)"
    assert f"warning: {path}: 2 rows could not be read." in shown.err
    assert predict(model, *keep, "--prefix", "model_", "--format", "json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [*rows[0]] == ["text", "model_label", "model_probability", "model_error"]
    assert [row["model_error"] is None for row in rows] == [row["model_label"] is not None for row in rows]


def test_an_answer_on_the_screen_takes_the_place_of_no_text(model: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "in.csv").write_text("label,text\ngood,bad\n")
    command = (model, "--file", tmp_path / "in.csv", "--format", "json")
    assert predict(*command, "--text", "label") == 2
    assert "in.csv has a column 'label' already" in capsys.readouterr().err
    assert predict(*command, "--text", "label", "--prefix", "model_") == 0
    assert json.loads(capsys.readouterr().out)["label"] == "good"
    assert predict(*command) == 0


def test_a_variant_whose_answers_depend_on_the_batch(exported, rows: Path, tmp_path: Path, capsys) -> None:
    folder = exported("classification", "onnx-int8")
    expected = [row["probability"] for row in compress.open(folder).predict([row["text"] for row in read_csv(rows)], 1)]
    assert predict(folder, "--file", rows, "--to", tmp_path / "out.jsonl", "--batch", "8") == 0
    assert "answers depend on the batch; 1 run together" in capsys.readouterr().err
    found = [json.loads(line)["probability"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [value is None for value in found] == [value is None for value in expected]
    assert [value for value in found if value] == pytest.approx([value for value in expected if value], rel=1e-6)


def test_a_model_that_cannot_be_opened(rows: Path, model: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(model, tmp_path / "broken")
    (tmp_path / "broken" / "model.onnx").write_bytes(b"x")
    assert predict(tmp_path / "broken", "--file", rows, "--to", tmp_path / "out.csv") == 1
    assert "it is empty, truncated, or not a model" in capsys.readouterr().err


def test_a_model_without_a_task(rows: Path, word_folder: Path, tmp_path: Path, capsys) -> None:
    assert predict(word_folder, "--file", rows, "--to", tmp_path / "out.csv") == 1
    assert "has no compress.json" in capsys.readouterr().err


def test_without_torch(rows: Path, model: Path, tmp_path: Path) -> None:
    done = light("predict", str(model), "--file", str(rows), "--to", str(tmp_path / "out.csv"))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_the_same_bytes(model: Path, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "in.csv", texts(30_000, longest=30))
    command = [sys.executable, "-m", "compress", "predict", str(model), "--file", str(path), "--to"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([*command, str(tmp_path / "whole.csv")], check=True, env=environment, timeout=300)
    out = tmp_path / "out.csv"
    draw = random.Random(1)
    for _ in range(3):
        process = subprocess.Popen([*command, str(out)], env=environment, start_new_session=True)
        time.sleep(draw.uniform(0.8, 2.5))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if out.exists():
            break
    if not out.exists():
        subprocess.run([*command, str(out)], check=True, env=environment, timeout=300)
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    deadline = time.monotonic() + 20
    while _workers_of(str(out)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _workers_of(str(out))


def _workers_of(name: str) -> list[int]:
    """Processes that were started for this output and are not gone."""
    import psutil

    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(name in word for word in process.info["cmdline"] or ())
    ]


def test_parquet_without_the_extra(model: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "in.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert predict(model, "--file", tmp_path / "in.parquet", "--to", tmp_path / "out.csv") == 1
    assert "pip install 'compress-encoders[bulk]'" in capsys.readouterr().err


def test_parquet_that_is_none(model: Path, tmp_path: Path, capsys) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "in.parquet").write_bytes(b"PAR1")
    assert predict(model, "--file", tmp_path / "in.parquet", "--to", tmp_path / "out.csv") == 1
    assert "cannot be read as parquet" in capsys.readouterr().err


def test_characters_that_end_lines_elsewhere_stay_in_their_cells(model: Path, tmp_path: Path) -> None:
    """A line separator, a vertical tab, a lone carriage return: of text, of JSON and of csv."""
    parquet = pytest.importorskip("pyarrow.parquet")
    given = ["good\u2028film", "a\x0bbad plot", "fine\rfilm", "dull\x85bit"]
    source = tmp_path / "in.jsonl"
    source.write_text(
        "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in given), encoding="utf-8"
    )
    for form in ("csv", "jsonl", "parquet"):
        target = tmp_path / f"out.{form}"
        assert predict(model, "--file", source, "--to", target) == 0
        if form == "csv":
            assert [row["text"] for row in read_csv(target)] == given
            again = tmp_path / "again.jsonl"
            assert predict(model, "--file", target, "--to", again, "--prefix", "second_") == 0
            target = again
        elif form == "parquet":
            assert parquet.read_table(target)["text"].to_pylist() == given
            continue
        lines = target.read_text(encoding="utf-8").split("\n")[:-1]
        assert [json.loads(line)["text"] for line in lines] == given


def test_a_damaged_job_json_is_reported_and_replaced(rows: Path, model: Path, tmp_path: Path, capsys) -> None:
    parts = tmp_path / "out.csv.parts"
    parts.mkdir()
    (parts / "job.json").write_text("{")
    command = (model, "--file", rows, "--to", tmp_path / "out.csv")
    assert predict(*command) != 0
    assert "job.json cannot be read" in capsys.readouterr().err
    assert predict(*command, "--replace") == 0
    assert len(read_csv(tmp_path / "out.csv")) == len(read_csv(rows))
