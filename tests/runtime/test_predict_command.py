"""`compress predict` as it is typed and piped."""

import io
import json
import sys
from pathlib import Path

import pytest

from compress.cli import main, parsed
from compress.model_info import TaskInfo
from compress.runtime.predict_command import shown, told


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


def test_texts_may_stand_after_options(winner: str, capsys) -> None:
    assert main(["predict", winner, "--format", "json", "sun", "rain"]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == ["sun", "rain"]


def test_what_repeats_or_may_be_left_out_may_stand_after_options() -> None:
    assert parsed(["bench", "a", "--rounds", "3", "b"]).models == ["a", "b"]
    assert parsed(["pull", "a", "--format", "json", "b"]).to == Path("b")


@pytest.mark.parametrize("words", [["ls", "--format", "json", "a", "b"], ["predict", "m", "--bogus", "x"]])
def test_words_that_nobody_takes_are_bad_usage(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as end:
        parsed(words)
    assert end.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err


def test_a_count_that_is_none(capsys) -> None:
    with pytest.raises(SystemExit):
        parsed(["predict", "m", "--batch", "a"])
    assert "expected a whole number from 1 up, got 'a'" in capsys.readouterr().err


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_stdin_that_is_not_utf8(errors: str, winner: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"sun\n\xff\n"), "utf-8", errors))
    assert main(["predict", winner]) == 1
    assert "stdin cannot be read: byte 0xff is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("candidates", [["good"], ["good", "bad"], ["good", "bad", "fine"]])
def test_a_typed_query_goes_with_all_candidates_behind_it(ranker: str, candidates: list[str], capsys) -> None:
    assert main(["predict", ranker, "--format", "json", "film", *candidates]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert len(json.loads(line)["scores"]) == len(candidates)


def test_a_line_that_does_not_fit_is_told_by_its_place_in_the_file(ranker: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "texts"
    file.write_text("film\tgood\n\nfilm\tbad\nfilm\n", encoding="utf-8")
    assert main(["predict", ranker, "--file", str(file), "--batch", "1"]) == 2
    assert "texts, line 4: passages reads" in capsys.readouterr().err


def test_lines_without_text_are_counted(ranker: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "texts"
    file.write_text("film\tgood\n\n\t\nfilm\tbad\n", encoding="utf-8")
    assert main(["predict", ranker, "--file", str(file)]) == 0
    found = capsys.readouterr()
    assert len(found.out.splitlines()) == 2
    assert "2 lines hold no text and have no answer; the first:" in found.err
    assert "texts, line 2." in found.err


def test_texts_are_typed_or_in_a_file(ranker: str, tmp_path: Path, capsys) -> None:
    assert main(["predict", ranker, "--file", str(tmp_path / "texts"), "film", "good"]) == 2
    assert "not both" in capsys.readouterr().err


def test_a_typed_text_that_is_not_utf8(winner: str, capsys) -> None:
    assert main(["predict", winner, "sun", "\udcff"]) == 2
    assert "text 2 is not UTF-8" in capsys.readouterr().err


def test_a_file_that_is_not_utf8(winner: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "texts").write_bytes(b"sun\n\xff\n")
    assert main(["predict", winner, "--file", str(tmp_path / "texts")]) == 1
    assert "texts cannot be read: byte 0xff is not UTF-8" in capsys.readouterr().err


def test_a_broken_description_is_told_without_the_words_of_a_library(tmp_path: Path, capsys) -> None:
    (tmp_path / "compress.json").write_text("{")
    assert main(["predict", str(tmp_path), "sun"]) == 1
    told = capsys.readouterr().err
    assert "compress.json cannot be read: the file: Invalid JSON" in told
    assert "pydantic" not in told


def test_answers_for_people() -> None:
    assert shown(0.25) == "0.2500"
    assert shown({"even": 0.5, "odd": 0.25}) == "even 0.5000, odd 0.2500"
    assert shown(["even", "odd"]) == "even, odd"
    assert shown([]) == "none"
    assert shown([{"type": "city", "start": 1}, {"type": "day", "start": 4}]) == "type city, start 1; type day, start 4"


def test_no_answer_for_people() -> None:
    assert told({"answer": None, "start": None, "end": None, "probability": 0.05}) == "no answer\t0.0500"
    assert told({"answer": "in Rome", "start": 3, "end": 10, "probability": 0.5}) == "in Rome\t3\t10\t0.5000"
