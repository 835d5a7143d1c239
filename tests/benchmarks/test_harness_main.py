"""The command line, the order of turns, and what is written while a run goes on; no model is made."""

import json
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.harness import __main__ as command
from benchmarks.harness import self_checks, tool_comparison
from benchmarks.harness.benchmark_model import Files
from benchmarks.harness.harness_results import HarnessReport
from benchmarks.harness.harness_setting import Setting
from benchmarks.harness.other_tools import BARE, BERT_PERF_TEST, ToolFailed
from benchmarks.report_store import Store
from compress.recipe.measure_schema import Measure


@pytest.fixture
def setting(tmp_path):
    files = {"fp32": tmp_path / "fp32", "int8": tmp_path / "int8"}
    short = Measure(rounds=3, seconds=0.1)
    return Setting(
        files=Files("made up", files, files, {}),
        work=tmp_path,
        cores=None,
        threads=1,
        batch=1,
        length=8,
        turns=4,
        sessions=4,
        measure=short,
        comparison=short,
        seconds=0.1,
    )


def test_defaults_are_the_whole_check():
    given = command.parse([])
    assert given.parts == command.PARTS
    assert (given.sessions, given.turns, given.threads, given.minutes) == (20, 6, 1, 25.0)
    assert given.output == Path("reports/harness")


def test_a_trial_is_small_and_overwrites_no_report():
    given = command.parse(["--trial"])
    assert (given.sessions, given.turns, given.output) == (2, 2, None)


@pytest.mark.parametrize("words", [["--only", "aa,slow"], ["--sessions", "0"], ["--threads", "x"]])
def test_bad_options_end_in_one_message(words, capsys):
    with pytest.raises(SystemExit) as end:
        command.parse(words)
    assert end.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_every_part_has_a_row_and_keys_differ():
    rows = [*tool_comparison.planned(command.OTHER_TOOLS), *self_checks.planned(tuple(command.SELF_CHECKS), 20)]
    assert {row.part for row in rows} == set(command.PARTS)
    assert len({row.key for row in rows}) == len(rows)
    assert {row.reason for row in rows} == {"not run"}


def test_goals_follow_the_number_of_sessions():
    goals = {row.key: row.goal for row in self_checks.planned(("aa", "slowed"), 20)}
    assert "19 of 20" in goals["aa"]
    assert "9 of 10" in goals["slowed"]


def test_the_report_is_written_with_every_row(tmp_path):
    rows = tool_comparison.planned(("bare",))
    report = HarnessReport(begun_at="now", made_by="x", command="y", rows=tuple(rows))
    store = Store(report, tmp_path / "out", command.page)
    command.store_row(store, rows[0].model_copy(update={"passed": True, "reason": None, "result": "1 ms"}))
    stored = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [row["passed"] for row in stored["rows"]] == [True, None]
    assert stored["rows"][0]["measured_at"]
    assert "1 ms" in (tmp_path / "out" / "report.md").read_text()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json", "report.md"]


GROUP = tool_comparison.Group("fp32", "ONNX Runtime", None, (BARE, BERT_PERF_TEST))


def take_turns(setting, monkeypatch, theirs, ours=lambda: 10.0):
    """All rows of one group, with the order in which everybody was asked."""
    order = []

    def time_theirs(setting, group, tool, calls):
        order.append(tool.name)
        return theirs(tool.name)

    def time_ours(setting, group):
        order.append("ours")
        return ours()

    monkeypatch.setattr(tool_comparison, "GROUPS", (GROUP,))
    monkeypatch.setattr(tool_comparison, "_time_theirs", time_theirs)
    monkeypatch.setattr(tool_comparison, "_time_ours", time_ours)
    return list(tool_comparison.compare(setting, ("bare", "bert_perf_test"))), order


def test_turns_go_there_and_back(setting, monkeypatch):
    rows, order = take_turns(setting, monkeypatch, lambda name: 10.1)
    there = ["ours", "bare", "bert_perf_test"]
    assert order == [*there, *there[::-1]] * 2
    assert [row.passed for row in rows[-2:]] == [True, True]
    assert len(rows[-1].turns) == 4
    assert "--samples" in rows[-1].setup["command"]


def test_a_tool_that_fails_has_a_failed_row_and_the_others_go_on(setting, monkeypatch):
    def theirs(name):
        if name == "bare":
            raise ToolFailed("bare ended with 1: no")
        return 10.0

    rows, order = take_turns(setting, monkeypatch, theirs)
    last = {row.part: row for row in rows}
    assert last["bare"].passed is False
    assert last["bare"].result == "bare ended with 1: no"
    assert last["bert_perf_test"].passed is True
    assert order.count("bare") == 1


def test_a_harness_that_fails_fails_all_rows(setting, monkeypatch):
    def ours():
        raise ToolFailed("the harness gave no figure")

    rows, order = take_turns(setting, monkeypatch, lambda name: 10.0, ours)
    assert [row.passed for row in rows] == [False, False]
    assert order.count("ours") == 1


def test_nothing_is_begun_when_the_time_is_up(setting, monkeypatch):
    late = Setting(**{**vars(setting), "deadline": time.monotonic() - 1.0})
    rows, order = take_turns(late, monkeypatch, lambda name: 10.0)
    assert (rows, order) == ([], [])
    assert list(self_checks.check_twins(late)) == list(self_checks.check_slowed(late)) == []


def test_twins_take_all_sessions_with_both_precisions(setting, monkeypatch, session):
    seen = []

    def run(setting, case, jobs, cores, seed):
        seen.append((case, [job.delay for job in jobs], seed))
        return session(1.0, case=case)

    monkeypatch.setattr(self_checks, "run_session", run)
    assert [row.passed for row in self_checks.check_twins(setting)][-1] is True
    assert seen == [("fp32", [0.0, 0.0], 0), ("int8", [0.0, 0.0], 1), ("fp32", [0.0, 0.0], 2), ("int8", [0.0, 0.0], 3)]
    seen.clear()
    assert [row.passed for row in self_checks.check_slowed(setting)][-1] is False
    assert [slowed for _, slowed, _ in seen] == [[self_checks.HANDICAP, 0.0]] * 2


@pytest.fixture
def neighbours(setting, monkeypatch, session):
    """All rows of the neighbour check, by key, with which cores the sessions and the neighbours were held to."""

    def check(cores, usable, slowed=(self_checks.PINNED,), ratio=2.5):
        seen, loaded = [], []

        @contextmanager
        def busy(cores):
            loaded.append(cores)
            yield

        def run(setting, case, jobs, cores, seed):
            seen.append((case, cores))
            slow = 2.0 if case in slowed else 1.0
            value = ratio if case == self_checks.PINNED else 2.5
            p50 = {"fp32": 10.0 * slow, "int8": 4.0 * slow}
            return session(value, case=case, p50=p50, unstable=case != self_checks.QUIET)

        monkeypatch.setattr(self_checks, "busy", busy)
        monkeypatch.setattr(self_checks, "run_session", run)
        monkeypatch.setattr(self_checks, "usable_cores", lambda: usable)
        rows = {row.key: row for row in self_checks.check_neighbour(Setting(**{**vars(setting), "cores": cores}))}
        return rows, seen, loaded

    return check


def test_neighbours_on_every_core_that_matters(neighbours):
    rows, seen, loaded = neighbours((3,), usable=2)
    assert seen == [
        (self_checks.QUIET, None),
        (self_checks.CHOSEN, None),
        (self_checks.ANY, None),
        (self_checks.PINNED, (3,)),
    ]
    assert loaded == [(3,), None, (3,)]
    assert {key: row.passed for key, row in rows.items()} == {
        "neighbour-chosen-core": True,
        "neighbour-any-core": True,
        "neighbour-pinned-core": True,
    }


def test_session_held_to_a_busy_core_is_not_judged_by_its_ratio(neighbours):
    rows, _, _ = neighbours((3,), usable=2, ratio=2.3)
    assert rows["neighbour-pinned-core"].passed is True
    assert "moved by -8.0%" in rows["neighbour-pinned-core"].result
    assert "does not decide" in rows["neighbour-pinned-core"].goal


def test_where_cores_cannot_be_chosen_the_rows_say_so(neighbours):
    rows, _, _ = neighbours(None, usable=2)
    for case in ("chosen", "pinned"):
        assert "cannot pin a process" in rows[f"neighbour-{case}-core"].reason
    assert rows["neighbour-any-core"].passed is True


def test_where_all_cores_are_needed_there_is_nowhere_else(neighbours):
    rows, _, _ = neighbours((3,), usable=1)
    for case in ("chosen", "any"):
        assert "needs every core" in rows[f"neighbour-{case}-core"].reason
    assert rows["neighbour-pinned-core"].passed is True


def test_the_neighbour_is_gone_afterwards():
    import psutil

    earlier = set(psutil.Process().children())
    with self_checks.busy(None):
        started = set(psutil.Process().children()) - earlier
        assert started
    assert not any(child.is_running() for child in started)
