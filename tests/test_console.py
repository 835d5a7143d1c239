import io
import json
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from compress.cli import main, parser
from compress.console import COMMANDS, Console, duration
from compress.errors import UsageError
from compress.terminal import LOG_INTERVAL, Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def terminal_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")


def make(format="human", terminal=False):
    out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
    return Console(format, out, err), out, err


def test_notes_and_warnings_go_to_stderr():
    console, out, err = make()
    console.note("reading")
    console.warn("few rows")
    assert out.getvalue() == ""
    assert err.getvalue() == "reading\nwarning: few rows\n"


def test_quiet_omits_notes_and_shows_warnings():
    console, _, err = make("quiet")
    console.note("reading")
    console.warn("few rows")
    with console.progress(3, "work") as bar:
        bar.advance(3)
    assert err.getvalue() == "warning: few rows\n"


def test_error_has_its_hint():
    console, out, err = make()
    console.error(UsageError("no such card", hint="compress ls"))
    assert out.getvalue() == ""
    assert err.getvalue() == "error: no such card\nhint: compress ls\n"


def test_error_in_json_is_one_object_on_stderr():
    console, out, err = make("json")
    console.error(UsageError("no such card", hint="compress ls"))
    content = json.loads(err.getvalue())["error"]
    assert content == {"kind": "UsageError", "message": "no such card", "hint": "compress ls", "exit_code": 2}
    assert out.getvalue() == ""


ROWS = [{"name": "[red]a", "score": 0.51234, "ok": True}, {"name": "b", "score": None, "ok": False}]


def test_human_table_shows_cells_verbatim():
    console, out, _ = make()
    console.table(ROWS, title="scores")
    text = out.getvalue()
    assert all(word in text for word in ("scores", "[red]a", "0.5123", "yes", "no", "-"))
    assert "\x1b" not in text


def test_json_table_is_a_list_of_objects():
    console, out, _ = make("json")
    console.table(ROWS, ["name", "score"])
    assert json.loads(out.getvalue()) == [{"name": "[red]a", "score": 0.51234}, {"name": "b", "score": None}]


def test_quiet_table_is_tab_separated():
    console, out, _ = make("quiet")
    console.table(ROWS, ["name", "score"])
    assert out.getvalue() == "[red]a\t0.5123\nb\t-\n"


@pytest.mark.parametrize("format", ["human", "json", "quiet"])
def test_empty_table(format):
    console, out, _ = make(format)
    console.table([], ["name"])
    assert format != "json" or json.loads(out.getvalue()) == []


def test_wide_table_is_not_cut_in_a_pipe():
    console, out, _ = make()
    console.table([{f"column{index}": "x" * 15 for index in range(8)}])
    assert out.getvalue().count("x" * 15) == 8


WIDE = [
    {"model": "runs/first/winner/cpu", "faster": "2.31 [2.25, 2.38]", "p50 ms": "1.23 [1.20, 1.26]", "load s": None}
]


@pytest.mark.parametrize(("width", "as_table"), [(100, True), (72, True), (45, False)])
def test_narrow_terminal_gets_a_block_a_row(monkeypatch, width, as_table):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    console, out, _ = make(terminal=True)
    console.table(WIDE * 2, title="cpu")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    assert (out.getvalue().count("faster") == 1) == as_table
    assert as_table or "  p50 ms  1.23 [1.20, 1.26]" in lines
    assert ("load s" in out.getvalue()) == as_table  # blocks omit cells without a value


def test_data_as_text_or_json():
    console, out, _ = make()
    console.data({"label": "positive"}, "positive")
    assert out.getvalue() == "positive\n"
    console, out, _ = make("json")
    console.data({"label": "positive"}, "positive")
    assert json.loads(out.getvalue()) == {"label": "positive"}


def test_jsonl_is_one_line_a_result():
    console, out, _ = make("json")
    console.jsonl({"label": "a"})
    console.jsonl({"label": "b"})
    assert out.getvalue() == '{"label":"a"}\n{"label":"b"}\n'


@dataclass
class Point:
    path: Path
    values: tuple


def test_json_of_dataclasses_arrays_and_sets():
    console, out, _ = make("json")
    console.data({1: Point(Path("a/b"), (np.float32(0.5), math.nan, np.arange(2), np.array([math.nan]), {"a"}))})
    assert json.loads(out.getvalue()) == {"1": {"path": "a/b", "values": [0.5, None, [0, 1], [None], ["a"]]}}


def test_log_progress_is_a_line_every_ten_seconds(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(Progress.__init__, "__defaults__", (0.0, lambda: now[0]))
    console, _, err = make()
    with console.progress(100, "train", "rows") as work:
        for _ in range(30):
            now[0] += 1
            work.advance(1, "loss 0.5")
    assert err.getvalue().splitlines() == [
        "train: 10/100 rows, 1.0 rows/s, 1 min 30 s left, loss 0.5",
        "train: 20/100 rows, 1.0 rows/s, 1 min 20 s left, loss 0.5",
        "train: 30/100 rows, 1.0 rows/s, 1 min 10 s left, loss 0.5",
        "train: 30 rows in 30 s",
    ]


def test_caller_may_give_the_remaining_time():
    written, now = [], [0.0]
    work = Progress(written.append, 100, "rows", LOG_INTERVAL, clock=lambda: now[0])
    for left in ("2 s left in phase 1 of 2", ""):
        now[0] += 10
        work.advance(10, "loss 0.5", left)
    assert written == [
        "10/100 rows, 1.0 rows/s, 2 s left in phase 1 of 2, loss 0.5",
        "20/100 rows, 1.0 rows/s, loss 0.5",
    ]


def test_progress_of_millions_has_all_digits():
    written, now = [], [0.0]
    work = Progress(written.append, 2_000_000, "rows", clock=lambda: now[0])
    now[0] += 100
    work.advance(1_234_567, left="")
    assert written == ["1,234,567/2,000,000 rows, 12,346 rows/s"]


def test_live_line_shows_remaining_time():
    console, _, err = make(terminal=True)
    with console.progress(4, "train", "rows") as bar:
        bar.advance(2, left="7 s left")
    assert "7 s left" in err.getvalue()


def test_short_work_writes_no_line():
    console, _, err = make()
    with console.progress(2, "work") as bar:
        bar.advance(2)
    assert err.getvalue() == ""


def test_live_line_lets_notes_pass():
    console, out, err = make(terminal=True)
    with console.progress(4, "train [a]", "rows") as bar:
        bar.advance(2, "loss 0.5")
        console.note("[checkpoint]")
        with console.progress(2, "evaluate") as inner:  # a second live line is not possible
            inner.advance(2)
        bar.advance(2)
    assert "train [a]" in err.getvalue()
    assert "[checkpoint]" in err.getvalue()
    assert "4/4" in err.getvalue()
    assert out.getvalue() == ""
    console.note("after")
    assert err.getvalue().endswith("after\n")


def test_unknown_total_is_shown_as_a_count():
    console, _, err = make(terminal=True)
    with console.progress(None, "read") as bar:
        bar.advance(5)
    assert "read" in err.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(8.4, "8 s"), (60, "1 min"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (7200, "2 h")]
)
def test_duration_format(seconds, text):
    assert duration(seconds) == text


def test_streams_are_looked_up_when_used(capsys):
    console = Console()
    console.line("data")
    console.note("note")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("data\n", "note\n")


def test_the_live_line_of_a_run_has_its_stage_its_work_and_the_time_left():
    console, out, err = make(terminal=True)
    logged = Progress(lambda state: None, 4, "rows")
    with console.overall() as line:
        line.show("[2/9] distilling", lambda: "about 7 min left")
        with line.work("seed 1: ", 4, "rows", logged) as work:
            work.advance(4, "loss 0.5")
            assert line.text().startswith("about 7 min left · [2/9] distilling · seed 1: 4/4 rows")
            console.note("above it")
        assert line.text() == "about 7 min left · [2/9] distilling"
    assert logged.done == 4
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err.getvalue())
    assert "above it" in text
    assert console.live is None
    assert out.getvalue() == ""


def test_the_live_line_counts_the_time_of_the_command_and_shows_all_at_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    console, _, err = make(terminal=True)
    console.began = time.monotonic() - 600
    for stage in ("search 1/3", "search 2/3"):
        with console.overall() as line:
            line.show(f"{stage} {'x' * 70} the end", lambda: "about 7 min left")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err.getvalue())
    assert text.count("0:10:0") >= 2
    assert "the end" in text


@pytest.mark.parametrize("format", ["human", "json", "quiet"])
def test_a_run_has_no_live_line_elsewhere(format):
    console, _, err = make(format, terminal=format != "human")
    with console.overall() as line:
        assert line is None
    assert err.getvalue() == ""


def test_a_failed_run_ends_the_live_line():
    console, _, err = make(terminal=True)
    with pytest.raises(UsageError), console.overall():
        raise UsageError("no")
    console.note("after")
    assert err.getvalue().endswith("after\n")


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("/usr/bin/compress", "compress"),
        ("compress-encoders", "compress-encoders"),
        ("Scripts/compress-encoders.exe", "compress-encoders"),
        ("/lib/compress/__main__.py", "python -m compress"),
        ("/lib/pytest/__main__.py", "compress"),
        ("my_script.py", "compress"),
    ],
)
def test_messages_repeat_the_name_that_was_typed(monkeypatch, called, name):
    monkeypatch.setattr("sys.argv", [called])
    console, out, err = make()
    console.note("next: compress plan my.yaml")
    console.warn("it differs. compress verify checks it")
    console.error(UsageError("compressed badly", hint="give a card (compress ls), or compress-bert"))
    console.data({}, "written; next: compress run my.yaml")
    assert err.getvalue() == (
        f"next: {name} plan my.yaml\nwarning: it differs. {name} verify checks it\n"
        f"error: compressed badly\nhint: give a card ({name} ls), or compress-bert\n"
    )
    assert out.getvalue() == f"written; next: {name} run my.yaml\n"
    console, out, err = make("json")
    console.data({"next": "compress plan"})
    console.error(UsageError("", hint="compress ls"))
    assert "compress plan" in out.getvalue()
    assert json.loads(err.getvalue())["error"]["hint"] == "compress ls"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_characters_that_an_encoding_lacks_are_escaped(monkeypatch, encoding):
    def read(stream):
        stream.flush()
        return stream.buffer.getvalue().decode(encoding)

    streams = [io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2)]
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        monkeypatch.setattr(f"sys.{name}", stream)
    with pytest.raises(SystemExit):
        main(["pull", "--help"])
    assert "http(s)://" in read(streams[0])
    streams[0].buffer.truncate(0)
    streams[0].buffer.seek(0)
    payload = {"text": "中 é 😀 \\"}
    Console("json").jsonl(payload)
    Console("json").error(UsageError("中"))
    assert json.loads(read(streams[0])) == payload
    assert json.loads(read(streams[1]))["error"]["message"] == "中"
    Console().line("中")
    assert read(streams[0]).endswith("中\n" if encoding == "utf-8" else "\\u4e2d\n")


def test_every_command_is_known_to_the_console():
    choices = next(action.choices for action in parser()._actions if action.dest == "command")
    assert tuple(choices) == COMMANDS


def test_help_repeats_the_name_that_was_typed(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["/lib/compress/__main__.py"])
    for arguments in (["--help"], ["run", "--help"]):
        with pytest.raises(SystemExit):
            parser().parse_args(arguments)
        text = " ".join(capsys.readouterr().out.split())
        assert "usage: python -m compress" in text
        assert "python -m compress" in text.replace("usage: python -m compress", "")
        assert "-m python" not in text
