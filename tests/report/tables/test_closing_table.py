"""The table at the end of a run: what it shows first, what it leaves out, and that it fits 80 columns."""

import io

import pytest

from compress.console import Console
from compress.errors import pluralize
from compress.report import show_report
from compress.report.report_warnings import report_warnings
from compress.report.tables.ledger_tables import MARK, closing_table
from compress.report.winner_summary import predict_command
from compress.tasks import KINDS
from compress.terminal import GAP
from tests.report.conftest import apply_gates, edited

LONG = "onnx-int8-embeddings-4bit"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def report(make_report):
    return apply_gates(make_report())


def test_the_winner_is_first_and_the_rest_follow_by_speed(report):
    table, left_out = closing_table(report, "cpu")
    names = [row["model and variant"] for row in table.rows]
    assert left_out == 0
    assert names[0] == MARK + report.verdict("cpu").winner
    assert names[-1].strip() == "bag of words"
    times = [float(row["p50"].split()[0]) for row in table.rows[1:-1]]
    assert times == sorted(times)
    assert all(not name.startswith(MARK) for name in names[1:])


@pytest.mark.parametrize("most", [1, 3, 5, 9])
def test_the_slowest_rows_are_left_out_but_never_the_teacher_or_a_baseline(report, most):
    table, left_out = closing_table(report, "cpu", most)
    names = [row["model and variant"][len(MARK) :] for row in table.rows]
    assert len(names) == max(most, 3)
    assert {report.verdict("cpu").winner, report.teacher, "bag of words"} <= set(names)
    assert left_out == len(report.rows) - (len(names) - 1)


@pytest.mark.parametrize("winner", ["trimmed", "quantization-aware-model"])
def test_it_is_a_table_at_80_columns(report, monkeypatch, tmp_path, winner):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    last = report.rows[-1]
    renamed = last.model_copy(update={"model": winner, "variant": last.variant.model_copy(update={"name": LONG})})
    changed = report.model_copy(update={"rows": (*report.rows[:-1], renamed)})
    out, err = Terminal(), io.StringIO()
    show_report.show_report(changed, tmp_path / "runs" / "films", Console("human", out, err), whole=False)
    table = [line for line in out.getvalue().splitlines() if not line.startswith(("cpu:", "cuda:"))]
    assert max(map(len, table)) <= 80
    assert out.getvalue().count("change") == len(report.targets)


def test_unstable_times_and_means_fit_80_columns_too(report, latency_of):
    unstable = latency_of(0.0767).model_copy(update={"status": "unstable", "by_mean": True})
    long = report.rows[-1].variant.model_copy(update={"name": LONG})
    rows = [row.model_copy(update={"model": "static-then-part-3x12x192", "variant": long}) for row in report.rows[-1:]]
    changed = report.model_copy(update={"rows": (*report.rows[:-1], *rows)})
    for row in report.rows[:-1]:
        changed = edited(changed, row.key, latency=unstable)
    table, _ = closing_table(changed, "cpu", narrow=True)
    cells = [[str(row[name]) for row in table.rows] for name in table.columns]
    widths = [
        max(len(line) for cell in (name, *column) for line in cell.split("\n"))
        for name, column in zip(table.columns, cells, strict=True)
    ]
    assert sum(widths) + GAP * (len(widths) - 1) <= 80
    assert any("\n  mean" in row["p50"] for row in table.rows)


def test_the_end_of_a_run_has_the_most_important_warnings_and_counts_the_others(report, tmp_path):
    warned = report.model_copy(update={"remarks": tuple(f"Warning {number}." for number in range(9))})
    for whole in (False, True):
        err = io.StringIO()
        show_report.show_report(warned, tmp_path, Console("human", io.StringIO(), err), whole=whole)
        assert err.getvalue().count("Warning") == (9 if whole else 4)
        assert ("5 more warnings: compress report " in err.getvalue()) is not whole


def test_warnings_come_before_remarks_of_what_was_left_out(report, tmp_path, monkeypatch):
    monkeypatch.setattr(show_report, "MOST_REMARKS", 1)
    report = report.model_copy(update={"data": report.data.model_copy(update={"skipped": 3})})
    report = report.model_copy(update={"remarks": report_warnings(report)})
    assert report.remarks
    warned = report.model_copy(update={"remarks": ("litert is left out.", *report.remarks)})
    err = io.StringIO()
    show_report.show_report(warned, tmp_path, Console("human", io.StringIO(), err), whole=False)
    assert "left out" not in err.getvalue()
    assert pluralize(len(report.remarks), "more warning") in err.getvalue()


def test_a_run_says_how_many_rows_it_left_out_and_report_shows_all(report, monkeypatch, tmp_path):
    monkeypatch.setattr(show_report, "MOST_ROWS", 4)
    (tmp_path / "my films").mkdir()
    for whole in (False, True):
        out, err = io.StringIO(), io.StringIO()
        show_report.show_report(report, tmp_path / "my films", Console("human", out, err), whole=whole)
        assert (f"more: compress report '{tmp_path / 'my films'}'" in err.getvalue()) is not whole
        assert ("student/torch-fp32" in out.getvalue()) is whole


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_command_has_as_many_texts_as_the_task_reads(report, kind, tmp_path):
    columns = {"multiple_choice": ("question", "choices"), "question_answering": ("question", "context")}
    task = report.task.model_copy(update={"kind": kind, "text": columns.get(kind, ("text",))})
    command = predict_command(task, report.target("cpu"), str(tmp_path / "a b"))
    texts = 3 if KINDS[kind].is_variadic else len(task.text)
    assert command.count("text") == texts
    assert command.startswith(f"compress predict '{tmp_path / 'a b'}' \"a text\"")


def test_the_next_command_is_printed_where_the_winner_is(report, tmp_path):
    (tmp_path / "winner" / "cpu").mkdir(parents=True)
    err = io.StringIO()
    show_report.show_report(report, tmp_path, Console("human", io.StringIO(), err))
    assert f"the winner on cpu is in {tmp_path / 'winner' / 'cpu'}" in err.getvalue()
    assert f'compress predict {tmp_path / "winner" / "cpu"} "a text"\n' in err.getvalue()
    used = predict_command(report.task, report.target("cuda"), str(tmp_path / "winner" / "cuda"))
    assert used == f'compress predict {tmp_path / "winner" / "cuda"} --device cuda "a text"'


@pytest.mark.parametrize("follows", [False, True])
def test_why_there_is_no_winner_is_said_unless_the_error_that_follows_says_it(report, tmp_path, follows):
    def without(verdict):
        return verdict.model_copy(update={"winner": None, "why": "nothing passed"})

    def present(target):
        return target.model_copy(update={"present": target.title == "cpu"})

    changes = {"verdicts": tuple(map(without, report.verdicts)), "targets": tuple(map(present, report.targets))}
    out = io.StringIO()
    console = Console("human", out, io.StringIO())
    show_report.show_report(report.model_copy(update=changes), tmp_path, console, whole=False, error_follows=follows)
    assert ("cpu: no winner: nothing passed" in out.getvalue()) is not follows
    assert "cuda: no winner: nothing passed" in out.getvalue()  # it is not here, so no error is about it
