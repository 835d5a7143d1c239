"""`compress predict` with arguments, files and pipes."""

import gzip
import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from compress.cli import main, parsed
from compress.errors import DataError
from compress.model_folder.model_info import TaskInfo
from compress.runtime.predict_command import _chunks, _groups, format_field, format_prediction


@pytest.fixture(scope="module")
def ranker(tiny_folder, tiny_model) -> str:
    """A model that puts any number of candidates in order."""
    task = TaskInfo(
        name="passages", kind="ranking", text=("query", "candidate"), labels=(), metric="map", max_length=32
    )
    return str(tiny_folder(tiny_model("bert", labels=("score",)), task))


@pytest.fixture
def winner(finished_run: Path) -> str:
    return str(finished_run / "winner" / "cpu")


def test_texts_may_follow_options(winner: str, capsys) -> None:
    assert main(["predict", winner, "--format", "json", "sun", "rain"]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == ["sun", "rain"]


def test_the_probabilities_of_all_classes_are_given_for_texts_too(winner: str, ranker: str, capsys) -> None:
    assert main(["predict", winner, "--format", "json", "--probabilities", "sun", " "]) == 0
    full, empty = map(json.loads, capsys.readouterr().out.splitlines())
    assert sum(full["probabilities"].values()) == pytest.approx(1.0)
    assert full["probability"] == pytest.approx(full["probabilities"][full["label"]])
    assert (empty["probabilities"], empty["reason"]) == (None, "no text")
    assert main(["predict", winner, "--probabilities", "sun"]) == 0
    assert capsys.readouterr().out.count(", ") == len(full["probabilities"]) - 1
    assert main(["predict", ranker, "--probabilities", "a question", "an answer"]) == 2
    assert "only tasks with classes have their probabilities" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--prefix", "a_"], ["--text", "text"], ["--bad-rows", "keep"]])
def test_options_of_files_with_columns_are_refused_for_texts(option: list[str], winner: str, capsys) -> None:
    assert main(["predict", winner, *option, "sun"]) == 2
    assert f"{option[0]} is of files with columns" in " ".join(capsys.readouterr().err.split())


def test_repeated_and_optional_arguments_may_follow_options() -> None:
    assert parsed(["bench", "a", "--rounds", "3", "b"]).models == ["a", "b"]
    assert parsed(["pull", "a", "--format", "json", "b"]).to == Path("b")


@pytest.mark.parametrize("words", [["ls", "--format", "json", "a", "b"], ["predict", "m", "--bogus", "x"]])
def test_unknown_arguments_are_refused(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as end:
        parsed(words)
    assert end.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err


def test_batch_that_is_not_a_number(capsys) -> None:
    with pytest.raises(SystemExit):
        parsed(["predict", "m", "--batch", "a"])
    assert "expected a whole number from 1 to 65536, got 'a'" in capsys.readouterr().err


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_stdin_that_is_not_utf8(errors: str, winner: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"sun\n\xff\n"), "utf-8", errors))
    assert main(["predict", winner]) == 1
    assert "stdin, line 2 cannot be read: byte 0xff is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("candidates", [["good"], ["good", "bad"], ["good", "bad", "fine"]])
def test_query_argument_takes_all_following_candidates(ranker: str, candidates: list[str], capsys) -> None:
    assert main(["predict", ranker, "--format", "json", "film", *candidates]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert len(json.loads(line)["scores"]) == len(candidates)


def test_error_names_file_and_line(ranker: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "texts"
    file.write_text("film\tgood\n\nfilm\tbad\nfilm\n", encoding="utf-8")
    assert main(["predict", ranker, "--file", str(file), "--batch", "1"]) == 2
    assert "texts, line 4: passages reads" in capsys.readouterr().err


@pytest.mark.parametrize("batch", [[], ["--batch", "1"]])
def test_lines_without_text_have_an_empty_answer(
    ranker: str, tmp_path: Path, batch: list[str], monkeypatch, capsys
) -> None:
    text = "film\tgood\n\n\t\nfilm\tbad\n \n"
    file = tmp_path / "texts"
    file.write_text(text, encoding="utf-8")
    assert main(["predict", ranker, "--file", str(file), "--format", "json", *batch]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["scores"] is None for each in answers] == [False, True, True, False, True]
    assert [each.get("reason") for each in answers] == [None, "no text", "no text", None, "no text"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["predict", ranker, *batch]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line == "no answer\tno text" for line in lines] == [False, True, True, False, True]


def test_an_argument_without_text_has_an_empty_answer(winner: str, capsys) -> None:
    assert main(["predict", winner, "", "sun"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "no answer\tno text"
    assert second != first


def test_arguments_and_file_are_exclusive(ranker: str, tmp_path: Path, capsys) -> None:
    assert main(["predict", ranker, "--file", str(tmp_path / "texts"), "film", "good"]) == 2
    assert "not both" in capsys.readouterr().err


def test_argument_that_is_not_utf8(winner: str, capsys) -> None:
    assert main(["predict", winner, "sun", "\udcff"]) == 2
    assert "text 2 is not UTF-8" in capsys.readouterr().err


def test_a_file_that_is_not_utf8(winner: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "texts").write_bytes(b"sun\n\xff\n")
    assert main(["predict", winner, "--file", str(tmp_path / "texts")]) == 1
    assert "texts, line 2 cannot be read: byte 0xff is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(("encoding", "pack"), [("cp1252", bytes), ("utf-8", gzip.compress), ("cp1252", gzip.compress)])
def test_lines_may_be_packed_and_in_another_encoding(encoding, pack, ranker: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / ("texts.txt" if pack is bytes else "texts.txt.gz")
    path.write_bytes(pack("ein Satz\tschön\tblau\n".encode(encoding)))
    assert main(["predict", ranker, "--file", str(path), "--encoding", encoding, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == ["ein Satz", "schön", "blau"]
    if encoding != "utf-8":
        assert main(["predict", ranker, "--file", str(path), "--encoding", "ascii"]) == 1
        assert "line 1: byte 0xf6" in capsys.readouterr().err


def test_the_encoding_is_that_of_a_file(winner: str, capsys) -> None:
    assert main(["predict", winner, "--encoding", "cp1252", "sun"]) == 2
    assert "--encoding is of --file" in capsys.readouterr().err


def test_broken_compress_json_is_reported_without_library_terms(tmp_path: Path, capsys) -> None:
    (tmp_path / "compress.json").write_text("{")
    assert main(["predict", str(tmp_path), "sun"]) == 1
    message = capsys.readouterr().err
    assert "compress.json cannot be read: it is not JSON" in message
    assert "pydantic" not in message


def test_format_field() -> None:
    assert format_field(0.25) == "0.2500"
    assert format_field({"even": 0.5, "odd": 0.25}) == "even 0.5000, odd 0.2500"
    assert format_field(["even", "odd"]) == "even, odd"
    assert format_field([]) == "none"
    assert (
        format_field([{"type": "city", "start": 1}, {"type": "day", "start": 4}])
        == "type city, start 1; type day, start 4"
    )


def test_prediction_without_a_value() -> None:
    assert format_prediction({"answer": None, "start": None, "end": None, "probability": 0.05}) == "no answer\t0.0500"
    assert (
        format_prediction({"answer": "in Rome", "start": 3, "end": 10, "probability": 0.5}) == "in Rome\t3\t10\t0.5000"
    )


def test_lines_of_a_pipe_are_answered_as_they_come(monkeypatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb", 0) as pipe:
        monkeypatch.setattr(sys, "stdin", stdin)
        groups = _groups(None, "utf-8", "")
        for given, expected in (
            (b"sun\nra", [("stdin, line 1", "sun")]),
            (b"in\r\n\n", [("stdin, line 2", "rain"), ("stdin, line 3", "")]),
        ):
            pipe.write(given)
            assert [*next(groups)] == expected
        pipe.write("fog ☁\n".encode()[:5])
        pipe.close()
        with pytest.raises(DataError, match="stdin, line 4 cannot be read: byte 0xe2"):
            list(next(groups))


def test_texts_run_in_full_batches_where_answers_depend_on_them() -> None:
    groups = [["a"], ["b", "c", "d"]]
    assert [*_chunks(groups, 2, always_full=True)] == [["a", "b"], ["c", "d"]]
    assert [*_chunks(groups, 2, always_full=False)] == [["a"], ["b", "c"], ["d"]]


def test_closed_stdin_is_bad_usage(winner: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["predict", winner]) == 2
    assert "stdin is closed" in capsys.readouterr().err


def test_closed_stdout_is_bad_usage(winner: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["predict", winner, "sun"]) == 2
    assert "stdout is closed" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "limit"), [("--threads", 1024), ("--batch", 65536)])
def test_numbers_have_an_upper_limit(option: str, limit: int, capsys) -> None:
    for number in (str(limit + 1), "1" + "0" * 30):
        with pytest.raises(SystemExit) as end:
            parsed(["predict", "m", option, number])
        assert end.value.code == 2
        assert f"from 1 to {limit}" in capsys.readouterr().err
    assert vars(parsed(["predict", "m", option, str(limit)]))[option[2:]] == limit


@pytest.mark.slow
def test_more_threads_than_cores_warn(winner: str, capsys) -> None:
    assert main(["predict", winner, "sun", "--threads", "500"]) == 0
    assert "more threads are slower" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["token_classification", "question_answering", "regression"])
def test_kind_that_does_not_fit_the_model_is_reported(winner: str, tmp_path: Path, kind: str, capsys) -> None:
    folder = shutil.copytree(winner, tmp_path / "model")
    info = json.loads((folder / "compress.json").read_text(encoding="utf-8"))
    info["task"]["kind"] = kind
    (folder / "compress.json").write_text(json.dumps(info), encoding="utf-8")
    assert main(["predict", str(folder), "sun and rain and sun"]) == 1
    expected = {"token_classification": "where this task expects (any, any, "}
    assert expected.get(kind, f"do not fit a task of the kind {kind}") in capsys.readouterr().err


def test_deeply_nested_config_is_reported(winner: str, tmp_path: Path, capsys) -> None:
    folder = shutil.copytree(winner, tmp_path / "model")
    (folder / "config.json").write_text("[" * 100_000 + "]" * 100_000, encoding="utf-8")
    assert main(["predict", str(folder), "sun"]) == 1
    assert "config.json cannot be read: maximum recursion depth" in capsys.readouterr().err
