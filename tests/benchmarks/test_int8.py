"""The comparison of INT8 files: its page and goals on made results, and one real case on a tiny encoder."""

import sys
from xml.etree import ElementTree as ET

import pytest

from benchmarks.defaults.real_sets import SETS, RealSet
from benchmarks.int8 import __main__ as command
from benchmarks.int8 import int8_files
from benchmarks.int8.int8_page import FIRST, LONG, goals, page, picture
from benchmarks.int8.int8_results import FP32, TORCH, Entry, Int8Report
from compress.errors import CompressError
from compress.measure.machine_snapshot import snapshot_machine
from tests.conftest import make_tiny


def entry(file, milliseconds, score=0.9, megabytes=20.0, **facts):
    times = {FIRST: milliseconds, LONG: milliseconds}
    return Entry(
        model="teacher", file=file, milliseconds=times, score=score, agreement=0.99, megabytes=megabytes, **facts
    )


def report(*entries, instructions=("avx512_vnni",)):
    machine = snapshot_machine().model_copy(update={"instructions": instructions})
    given = (entry(TORCH, 9.0, megabytes=90.0), entry(FP32, 6.0, megabytes=90.0), *entries)
    return Int8Report(begun_at="now", made_by="compress", rows=8000, entries=given, surroundings=machine)


def verdicts(*entries, **facts):
    return {row["goal"]: (row["result"], row["verdict"]) for row in goals(report(*entries, **facts))}


def test_the_page_has_sizes_scores_and_speeds():
    refused = Entry(model="teacher", file="optimum avx2", reason="transformers refuses it")
    text = page(report(entry("onnx-int8", 2.0, megabytes=22.5), refused))
    assert "| onnx-int8 | 22.5 | 25 % | 90.0 | 99.0 % | 3.00 |" in text
    assert "| optimum avx2 | - |" in text
    assert "| transformers refuses it |" in text


def test_the_best_file_has_an_equal_score():
    found = verdicts(
        entry("onnx-int8", 2.0), entry("onnx-int8-minmax", 1.0, score=0.89), entry("optimum avx2", 2.8, score=0.9)
    )
    best = "teacher: best file with an equal score (within 0.5 points)"
    assert found[f"{best}, 3 times ONNX Runtime fp32"] == ("onnx-int8, 3.00", "met")
    assert found[f"{best}, 1.3 times optimum-onnx's"] == ("onnx-int8 1.40 times optimum avx2", "met")


def test_without_dot_products_less_is_asked_for():
    goal = "teacher: best file with an equal score (within 0.5 points), 2.2 times ONNX Runtime fp32"
    assert verdicts(entry("onnx-int8", 3.0), instructions=("avx2",))[goal] == ("onnx-int8, 2.00", "missed")


def test_the_share_of_the_rate_and_sizes_are_judged():
    unquantized = entry("openvino-fp32", 5.0, rate_shares={LONG: 0.9})
    found = verdicts(entry("onnx-int8", 2.0, megabytes=24.0, rate_shares={LONG: 0.4}), unquantized)
    assert found[f"teacher: 50 % of the INT8 rate at {LONG}"] == ("onnx-int8, 40 %", "missed")
    assert found["teacher: onnx-int8 at most 26 % of fp32's size"] == ("26.7 %", "missed")


def test_the_picture_is_a_drawing_of_its_own():
    drawing = picture(report(entry("onnx-int8", 2.0)), "teacher")
    ET.fromstring(drawing)
    assert "onnx-int8: 3.00 times faster, 90.0" in drawing
    assert picture(report(), "student") is None


def test_only_threads_that_the_page_has_are_timed(capsys):
    for threads in ("4", "a", "1,"):
        with pytest.raises(SystemExit):
            command.parse(["--threads", threads])
        assert "expected one or more of 1, 2" in capsys.readouterr().err
    assert command.command(command.parse(["--trial", "--threads", "2"])).endswith("--threads 2 --budget 2")


def test_a_tool_that_fails_says_why(tmp_path, monkeypatch):
    class Here:
        python = sys.executable

        def install(self):
            pass

    monkeypatch.setitem(int8_files.ENVIRONMENTS, "optimum", Here())
    with pytest.raises(CompressError, match="No module named 'optimum"):
        int8_files.run_tool("optimum", {"model": "none", "settings": "avx2", "output": str(tmp_path / "made")})


@pytest.mark.slow
def test_it_runs_on_a_tiny_encoder(tmp_path, monkeypatch, tiny_folder):
    lines = [f"the film is {('great', 'dull')[row % 2]} {'so ' * (row % 5)},{row % 2}" for row in range(80)]
    for role in ("train", "test"):
        (tmp_path / f"{role}.csv").write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    task = {"name": "sst2", "kind": "classification", "text": ["text"], "label": "label", "max_length": 128}
    monkeypatch.setenv("COMPRESS_DATA", str(tmp_path))
    monkeypatch.setitem(SETS, "sst2", RealSet({"train": "train.csv", "test": "test.csv"}, task))
    folder = tiny_folder(make_tiny("bert", max_position_embeddings=128))
    monkeypatch.setitem(int8_files.RECIPE, "teacher", str(folder))
    words = ["--trial", "--ours", "--models", "student", "--threads", "1", "--out", str(tmp_path / "out")]
    assert command.main([*words, "--work", str(tmp_path / "work")]) == 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| onnx-int8 |" in text
    assert "| onnx-int8-minmax |" in text
