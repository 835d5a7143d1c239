import io
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from compress import console
from compress.console import Console, Lines
from compress.errors import UsageError


class Terminal(io.StringIO):
    def isatty(self):
        return True


def make(format="human", terminal=False):
    out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
    return Console(format, out, err), out, err


def test_notes_and_warnings_go_to_stderr():
    told, out, err = make()
    told.note("reading")
    told.warn("few rows")
    assert out.getvalue() == ""
    assert err.getvalue() == "reading\nwarning: few rows\n"


def test_quiet_keeps_notes_and_shows_warnings():
    told, _, err = make("quiet")
    told.note("reading")
    told.warn("few rows")
    with told.progress(3, "work") as bar:
        bar.advance(3)
    assert err.getvalue() == "warning: few rows\n"


def test_an_error_tells_its_hint():
    told, out, err = make()
    told.error(UsageError("no such card", hint="compress ls"))
    assert out.getvalue() == ""
    assert err.getvalue() == "error: no such card\nhint: compress ls\n"


def test_an_error_in_json_is_one_object_on_stderr():
    told, out, err = make("json")
    told.error(UsageError("no such card", hint="compress ls"))
    fault = json.loads(err.getvalue())["error"]
    assert fault == {"kind": "UsageError", "message": "no such card", "hint": "compress ls", "exit_code": 2}
    assert out.getvalue() == ""


def test_an_error_of_another_tree_is_told_too():
    told, _, err = make()
    told.error(KeyboardInterrupt())
    assert err.getvalue() == "error: KeyboardInterrupt\n"


ROWS = [{"name": "[red]a", "score": 0.51234, "ok": True}, {"name": "b", "score": None, "ok": False}]


def test_a_table_for_people_shows_every_cell_as_it_is():
    told, out, _ = make()
    told.table(ROWS, title="scores")
    text = out.getvalue()
    assert all(word in text for word in ("scores", "[red]a", "0.5123", "yes", "no", "-"))
    assert "\x1b" not in text


def test_a_table_in_json_is_a_list_of_objects():
    told, out, _ = make("json")
    told.table(ROWS, ["name", "score"])
    assert json.loads(out.getvalue()) == [{"name": "[red]a", "score": 0.51234}, {"name": "b", "score": None}]


def test_a_table_in_quiet_is_tab_separated():
    told, out, _ = make("quiet")
    told.table(ROWS, ["name", "score"])
    assert out.getvalue() == "[red]a\t0.5123\nb\t-\n"


@pytest.mark.parametrize("format", ["human", "json", "quiet"])
def test_an_empty_table_is_no_failure(format):
    told, out, _ = make(format)
    told.table([], ["name"])
    assert format != "json" or json.loads(out.getvalue()) == []


def test_a_wide_table_is_not_cut_in_a_pipe():
    told, out, _ = make()
    told.table([{f"column{index}": "x" * 15 for index in range(8)}])
    assert out.getvalue().count("x" * 15) == 8


WIDE = [
    {"model": "runs/first/winner/cpu", "faster": "2.31 [2.25, 2.38]", "p50 ms": "1.23 [1.20, 1.26]", "load s": None}
]


@pytest.mark.parametrize(("width", "drawn"), [(100, True), (72, True), (45, False)])
def test_a_terminal_too_narrow_for_a_table_gets_a_block_a_row(monkeypatch, width, drawn):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    told, out, _ = make(terminal=True)
    told.table(WIDE * 2, title="cpu")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    assert (out.getvalue().count("faster") == 1) == drawn
    assert drawn or "  p50 ms  1.23 [1.20, 1.26]" in lines
    assert ("load s" in out.getvalue()) == drawn  # in a block, what has no value has no line


def test_data_has_a_form_for_people():
    told, out, _ = make()
    told.data({"label": "positive"}, "positive")
    assert out.getvalue() == "positive\n"
    told, out, _ = make("json")
    told.data({"label": "positive"}, "positive")
    assert json.loads(out.getvalue()) == {"label": "positive"}


def test_a_stream_of_results_is_a_line_each():
    told, out, _ = make("json")
    told.jsonl({"label": "a"})
    told.jsonl({"label": "b"})
    assert out.getvalue() == '{"label": "a"}\n{"label": "b"}\n'


@dataclass
class Point:
    place: Path
    values: tuple


def test_json_knows_our_values():
    point = Point(Path("a/b"), (np.float32(0.5), math.nan, np.arange(2), {"b", "a"}, math.inf))
    assert console.jsonable({1: point}) == {"1": {"place": "a/b", "values": [0.5, None, [0, 1], ["a", "b"], None]}}


def test_progress_in_a_log_is_a_line_now_and_then(monkeypatch):
    said, now = [], [0.0]
    lines = Lines(said.append, 100, "train", "rows", clock=lambda: now[0])
    for _ in range(30):
        now[0] += 1
        lines.advance(1, "loss 0.5")
    lines.close()
    assert said == [
        "train: 10/100 rows, 1.0 rows/s, 1 min 30 s left, loss 0.5",
        "train: 20/100 rows, 1.0 rows/s, 1 min 20 s left, loss 0.5",
        "train: 30/100 rows, 1.0 rows/s, 1 min 10 s left, loss 0.5",
        "train: 30 rows in 30 s",
    ]


def test_what_is_left_may_be_told_by_who_knows_better():
    said, now = [], [0.0]
    lines = Lines(said.append, 100, "train", "rows", clock=lambda: now[0])
    for left in ("2 s left in phase 1 of 2", ""):
        now[0] += 10
        lines.advance(10, "loss 0.5", left)
    assert said == [
        "train: 10/100 rows, 1.0 rows/s, 2 s left in phase 1 of 2, loss 0.5",
        "train: 20/100 rows, 1.0 rows/s, loss 0.5",
    ]


def test_a_bar_shows_what_is_left():
    told, _, err = make(terminal=True)
    with told.progress(4, "train", "rows") as bar:
        bar.advance(2, left="7 s left")
    assert "7 s left" in err.getvalue()


def test_short_work_leaves_no_line():
    told, _, err = make()
    with told.progress(2, "work") as bar:
        bar.advance(2)
    assert err.getvalue() == ""


def test_progress_on_a_terminal_shows_the_bar_and_lets_notes_pass():
    told, out, err = make(terminal=True)
    with told.progress(4, "train [a]", "rows") as bar:
        bar.advance(2, "loss 0.5")
        told.note("[checkpoint]")
        with told.progress(2, "evaluate") as inner:  # a second live bar is not possible: it must not fail
            inner.advance(2)
        bar.advance(2)
    assert "train [a]" in err.getvalue()
    assert "[checkpoint]" in err.getvalue()
    assert "4/4" in err.getvalue()
    assert out.getvalue() == ""
    told.note("after")
    assert err.getvalue().endswith("after\n")


def test_unknown_totals_are_shown_as_a_count():
    told, _, err = make(terminal=True)
    with told.progress(None, "read") as bar:
        bar.advance(5)
    assert "read" in err.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(8.4, "8 s"), (60, "1 min"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (7200, "2 h")]
)
def test_durations_read_well(seconds, text):
    assert console.duration(seconds) == text


def test_streams_are_looked_up_when_used(capsys):
    told = Console()
    told.line("data")
    told.note("note")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("data\n", "note\n")
