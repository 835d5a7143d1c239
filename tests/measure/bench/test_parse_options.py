from pathlib import Path

import pytest

from compress.errors import UsageError
from compress.measure.bench.parse_options import (
    DEFAULT_LENGTH,
    GridOptions,
    read_grid,
    read_settings,
    read_target,
    read_targets,
    read_texts,
    with_lengths,
)
from compress.model_folder.model_info import TaskInfo
from compress.recipe.measure_schema import Measure, Target

CPU = Target(device="cpu")


def test_targets_in_one_line():
    assert read_target("cpu, threads=2,batch = 8,length=64") == Target(device="cpu", threads=2, batch=8, length=64)
    assert read_target("cpu,length=data") == Target(device="cpu", length="data")
    assert read_targets([]) == (CPU,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpuu", r"^--target cpuu: device: Input should be 'cpu' or 'cuda', got 'cpuu'\.$"),
        ("", "device: Input should be 'cpu' or 'cuda', got ''"),
        ("cpu,thread=2", "expected threads=N, batch=N or length=N, each once; got 'thread=2'"),
        ("cpu,threads=0", "threads: Input should be greater than or equal to 1, got '0'"),
        ("cpu,threads=2.5", r"threads: Input should be a valid integer, got '2\.5'"),
        ("cpu,length=long", "length: Input should be a valid integer or Input should be 'data', got 'long'"),
        ("cpu,threads", "threads: Input should be a valid integer"),
        ("cpu,", "got ''"),
        ("cpu,batch=1,batch=2", "each once; got 'batch=2'"),
    ],
)
def test_targets_that_cannot_be_read(text, message):
    with pytest.raises(UsageError, match=message):
        read_target(text)


def test_a_repeated_target_counts_once():
    assert read_targets(["cpu", "cpu"]) == (CPU,)


@pytest.mark.parametrize("texts", [["batch=1,8", "length=32,data"], ["batch=1", "length=32, data", "batch=8"]])
def test_grid_in_several_options(texts):
    assert read_grid(texts) == GridOptions(batch=(1, 8), length=(32, "data"))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["batch"], "batch: Input should be a valid integer, got ''"),
        (["batches=1"], "expected batch=N,N"),
        (["1,8"], "expected batch=N"),
        ([""], "expected batch=N"),
        (["batch=1,,8"], "batch: Input should be a valid integer"),
        (["batch=data"], "batch: Input should be a valid integer, got 'data'"),
    ],
)
def test_grids_that_cannot_be_read(texts, message):
    with pytest.raises(UsageError, match=message):
        read_grid(texts)


def test_callers():
    assert read_settings(callers="4, 1,2,1").callers == (4, 1, 2)
    for wrong in ("", "0", "1,a", "-1"):
        with pytest.raises(UsageError, match="--callers: Input should be"):
            read_settings(callers=wrong)


@pytest.mark.parametrize(("text", "seconds"), [("30", 30.0), ("30s", 30.0), ("1.5m", 90.0), (" 5m ", 300.0)])
def test_budgets(text, seconds):
    assert read_settings(budget=text).budget == seconds


@pytest.mark.parametrize("text", ["", "abc", "0", "-5s", "nan", "inf", "30 seconds", "s"])
def test_budgets_that_cannot_be_read(text):
    with pytest.raises(UsageError, match=r"--budget: (Input should be|expected a duration)"):
        read_settings(budget=text)


def test_settings_keep_their_defaults():
    assert read_settings() == Measure()
    assert read_settings(rounds=5, seconds=0.1, callers="2") == Measure(rounds=5, seconds=0.1, callers=(2,))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rounds": 2}, r"^--rounds: Input should be greater than or equal to 3, got '2'\.$"),
        ({"seconds": 0.0}, r"^--seconds: Input should be greater than 0, got '0\.0'\.$"),
        ({"seconds": float("nan")}, "--seconds: .*got 'nan'"),
        ({"seconds": float("inf")}, "--seconds: .*got 'inf'"),
        ({"budget": ""}, r"^--budget: expected a duration such as 30s or 5m, got ''\.$"),
        ({"rounds": 5, "budget": "5s"}, "--budget and --rounds cannot be combined"),
    ],
)
def test_invalid_settings_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        read_settings(**given)


def task(kind="classification", *columns):
    return TaskInfo(name="t", kind=kind, text=columns or ("text",), metric="accuracy", max_length=32)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "has no text"),
        (b"\n \n", "has no text"),
        (b"good\n\nbad \xe9\n", "byte 11 of the file is not UTF-8"),
        (b"good\na\tb\tc\n", "line 2: expected 1 text with tabs between, got 3"),
    ],
)
def test_texts_that_cannot_be_read(tmp_path, content, message):
    path = tmp_path / "texts.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=f"--texts .*{message}"):
        read_texts(path, [task()])


def test_pairs_have_a_tab_between(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("a film\ta plot\n")
    pairs = [task(), task("classification", "first", "second")]
    assert read_texts(path, pairs) == [("a film", "a plot")]
    for content in ("a film\n", "a film\ta plot\t1\n"):
        path.write_text(content)
        with pytest.raises(UsageError, match=r"--texts .* line 1: expected 2 texts with tabs between"):
            read_texts(path, pairs)


@pytest.mark.parametrize("kind", ["ranking", "multiple_choice"])
def test_question_precedes_any_number_of_texts(tmp_path, kind):
    path = tmp_path / "texts.txt"
    path.write_text("what ?\tsun\train\n")
    assert read_texts(path, [task(kind, "query", "candidate")]) == [("what ?", "sun", "rain")]
    path.write_text("what ?\tsun\train\n\nwhat ?\n")
    with pytest.raises(UsageError, match=r"--texts .*texts\.txt: line 3: expected 2 texts"):
        read_texts(path, [task(kind, "query", "candidate")])


def test_first_line_decides_about_pairs_without_a_task(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"\xef\xbb\xbfa film\ta plot\r\n")
    assert read_texts(path, []) == [("a film", "a plot")]
    path.write_text("a film\na film\ta plot\n")
    with pytest.raises(UsageError, match="line 2: expected 1 text"):
        read_texts(path, [])


def test_row_that_a_task_cannot_read_is_reported_with_its_line(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("what ?\tsun\train\n\nwhat ?\tsun\n")
    with pytest.raises(UsageError, match="line 3: t reads a question and 2 or more choices"):
        read_texts(path, [task("multiple_choice", "question", "choices")])


class TestLengths:
    LONG = Target(device="cpu", length=64)
    DATA = Target(device="cpu", length="data")
    TEXTS = Path("texts.txt")

    def test_default_length_is_used_without_texts(self):
        assert with_lengths([CPU, self.LONG], GridOptions(), None)[0].length == DEFAULT_LENGTH
        assert with_lengths([CPU, self.LONG], GridOptions(), self.TEXTS)[0].length == "data"

    def test_length_data_needs_texts(self):
        for targets, cells in (([self.DATA], GridOptions()), ([CPU], GridOptions(length=("data",)))):
            with pytest.raises(UsageError, match="add --texts FILE"):
                with_lengths(targets, cells, None)

    def test_unused_texts_are_refused(self):
        with pytest.raises(UsageError, match="--texts is not used"):
            with_lengths([self.LONG], GridOptions(), self.TEXTS)
        with_lengths([self.LONG], GridOptions(length=("data",)), self.TEXTS)


@pytest.mark.parametrize("value", ["1" + "0" * 30, "70000", "9" * 5000])
def test_numbers_above_the_limit_are_refused(value):
    for read in (
        lambda: read_target(f"cpu,threads={value}"),
        lambda: read_grid([f"batch={value}"]),
        lambda: read_settings(callers=value),
        lambda: read_settings(budget=f"{value}00"),
        lambda: read_settings(rounds=70000),
    ):
        with pytest.raises(UsageError, match="Input should be") as raised:
            read()
        assert len(raised.value.message) < 5200
