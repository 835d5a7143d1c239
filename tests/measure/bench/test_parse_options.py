import pytest
from pydantic import ValidationError

from compress.errors import UsageError
from compress.measure.bench.parse_options import (
    MIN_ROUNDS,
    GridOptions,
    read_callers,
    read_grid,
    read_settings,
    read_target,
    read_targets,
    read_texts,
    with_lengths,
)
from compress.recipe.measure_schema import Measure, Target

CPU = Target(device="cpu")


def test_targets_in_one_line():
    assert read_target("cpu, threads=2,batch = 8,length=64") == Target(device="cpu", threads=2, batch=8, length=64)
    assert read_target("cpu,length=data") == Target(device="cpu", length="data")
    assert read_targets([]) == (CPU,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpuu", "no device is called 'cpuu'; did you mean cpu"),
        ("", "no device is called ''"),
        ("cpu,thread=2", "'thread=2' is not one of .*; did you mean threads"),
        ("cpu,threads=0", "threads: expected a whole number from 1 to 1024, got '0'"),
        ("cpu,threads=2.5", "threads: expected a whole number"),
        ("cpu,length=long", "length: expected a whole number from 1 to 65536 or data, got 'long'"),
        ("cpu,threads", "threads needs a number: threads=8"),
        ("cpu,", "'' is not one of"),
        ("cpu,batch=1,batch=2", "batch is given twice"),
    ],
)
def test_targets_that_cannot_be_read(text, message):
    with pytest.raises(UsageError, match=message):
        read_target(text)


def test_a_target_is_given_once():
    with pytest.raises(UsageError, match="cpu is given twice"):
        read_targets(["cpu", "cpu"])


@pytest.mark.parametrize("texts", [["batch=1,8", "length=32,data"], ["batch=1,8 length=32,data"]])
def test_grid_in_one_option_or_two(texts):
    assert read_grid(texts) == GridOptions(batch=(1, 8), length=(32, "data"))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["batch"], "batch needs a number, or several: batch=1,8,32"),
        (["length batch=1"], "length needs a number, or several: length=32,128"),
        (["batches=1"], "expected batch=N,N.*did you mean batch"),
        (["1,8"], "expected batch=N"),
        ([""], "expected batch=N"),
        (["batch="], "expected a whole number"),
        (["batch=1,,8"], "expected a whole number"),
        (["batch=data"], "expected a whole number"),
        (["batch=1", "batch=2"], "batch is given twice"),
    ],
)
def test_grids_that_cannot_be_read(texts, message):
    with pytest.raises(UsageError, match=message):
        read_grid(texts)


def test_callers():
    assert read_callers(None) == ()
    assert read_callers("4, 1,2,1") == (1, 2, 4)
    for wrong in ("", "0", "1,a", "-1"):
        with pytest.raises(UsageError, match="--callers"):
            read_callers(wrong)


@pytest.mark.parametrize(("text", "seconds"), [("30", 30.0), ("30s", 30.0), ("1.5m", 90.0), (" 5m ", 300.0)])
def test_budgets(text, seconds):
    assert read_settings(budget=text).budget == seconds


@pytest.mark.parametrize("text", ["", "abc", "0", "-5s", "nan", "inf", "30 seconds", "s"])
def test_budgets_that_cannot_be_read(text):
    with pytest.raises(UsageError, match=r"--budget .*expected seconds, or a duration"):
        read_settings(budget=text)


def test_settings_keep_their_defaults():
    assert read_settings() == Measure()
    assert read_settings(rounds=5, seconds=0.1, callers="2") == Measure(rounds=5, seconds=0.1, callers=(2,))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rounds": 2}, r"^--rounds 2: expected a whole number from 3 to 10000\.$"),
        ({"rounds": 0}, r"^--rounds 0: expected a whole number from 3 to 10000\.$"),
        ({"seconds": 0.0}, r"^--seconds 0: expected a number of seconds above 0, at most 3600\.$"),
        ({"seconds": float("nan")}, "--seconds nan: "),
        ({"seconds": float("inf")}, "--seconds inf: "),
        ({"rounds": 5, "budget": "5s"}, "--budget and --rounds cannot be combined"),
    ],
)
def test_invalid_settings_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        read_settings(**given)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "has no text"),
        (b"\n \n", "has no text"),
        (b"\xff\xfe", "line 1: byte 0xff is not UTF-8"),
        (b"good\n\nbad \xe9\n", "line 3: byte 0xe9 is not UTF-8"),
        (b"good\na\tb\tc\n", "line 2: expected one text and got 3, with tabs between"),
    ],
)
def test_texts_that_cannot_be_read(tmp_path, content, message):
    path = tmp_path / "texts.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=f"--texts .*{message}"):
        read_texts(path, (1, 1))


def test_pairs_have_a_tab_between(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("a film\ta plot\n")
    assert read_texts(path, (2, 2)) == [("a film", "a plot")]
    for content in ("a film\n", "a film\ta plot\t1\n"):
        path.write_text(content)
        with pytest.raises(UsageError, match=r"--texts .* line 1: expected two texts with one tab between"):
            read_texts(path, (2, 2))


def test_first_line_decides_about_pairs_without_a_task(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"\xef\xbb\xbfa film\ta plot\r\n")
    assert read_texts(path, None) == [("a film", "a plot")]
    path.write_text("a film\na film\ta plot\n")
    with pytest.raises(UsageError, match="line 2: expected one text"):
        read_texts(path, None)


def test_minimum_rounds_equal_those_of_a_recipe():
    Measure(rounds=MIN_ROUNDS)
    with pytest.raises(ValidationError):
        Measure(rounds=MIN_ROUNDS - 1)


class TestLengths:
    LONG = Target(device="cpu", length=64)
    DATA = Target(device="cpu", length="data")

    def test_default_length_is_used_without_texts(self):
        assert with_lengths([CPU, self.LONG], GridOptions(), False, 128)[0].length == 128
        assert with_lengths([CPU, self.LONG], GridOptions(), True, 128)[0].length == "data"

    def test_length_data_needs_texts(self):
        for targets, cells in (([self.DATA], GridOptions()), ([CPU], GridOptions(length=("data",)))):
            with pytest.raises(UsageError, match="add --texts FILE"):
                with_lengths(targets, cells, False, 128)

    def test_unused_texts_are_refused(self):
        with pytest.raises(UsageError, match="--texts is not used"):
            with_lengths([self.LONG], GridOptions(), True, 128)
        with_lengths([self.LONG], GridOptions(length=("data",)), True, 128)


def test_unreadable_text_is_reported_with_its_line(tmp_path):
    def check(text):
        if len(text) < 3:
            raise UsageError("too few choices.")

    path = tmp_path / "texts.txt"
    path.write_text("a\tb\tc\n\na\tb\n")
    with pytest.raises(UsageError, match=r"--texts .*texts\.txt: line 3: too few choices"):
        read_texts(path, (2, None), check)


@pytest.mark.parametrize("value", ["1" + "0" * 30, "1025", "9" * 5000])
def test_numbers_above_the_limit_are_refused(value):
    with pytest.raises(UsageError, match="threads: expected a whole number from 1 to 1024, got"):
        read_target(f"cpu,threads={value}")
    with pytest.raises(UsageError, match="expected a whole number from 1 to 65536"):
        read_grid([f"batch={value}00"])
    with pytest.raises(UsageError, match="expected a whole number from 1 to 10000, got"):
        read_callers(f"{value}0")
    with pytest.raises(UsageError, match="at most 1,000,000 seconds"):
        read_settings(budget=f"{value}000")
    with pytest.raises(UsageError, match="expected a whole number from 3 to 10000"):
        read_settings(rounds=int(value[:4000]) * 10)
