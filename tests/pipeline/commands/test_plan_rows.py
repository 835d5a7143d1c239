"""A plan reads the rows and refuses those that a run would refuse."""

from types import SimpleNamespace

import pytest

from compress.cli import main
from compress.environment import CpuState
from compress.pipeline.commands import plan_command

GOOD = [f"{number},a text about {word},{word},{number / 7}" for number in range(40) for word in ("crash", "refund")]


@pytest.fixture
def plan(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def planned(*rows, label="label", kind="classification"):
        (tmp_path / "rows.csv").write_text("\n".join(["id,text,label,score", *rows]))
        (tmp_path / "my.yaml").unlink(missing_ok=True)
        columns = ["--text", "text", "--label", label, "--kind", kind]
        assert main(["init", "my.yaml", "--train", "rows.csv", *columns]) == 0
        return main(["plan", "my.yaml"]), capsys.readouterr()

    return planned


def test_good_rows_are_counted(plan):
    code, shown = plan(*GOOD)
    assert code == 0
    assert "rows: train 58, select 14, test 8" in shown.out + shown.err


@pytest.mark.parametrize(("load", "is_busy"), [(0.1, False), (3.7, True), (None, False)])
def test_estimates_on_a_busy_machine_say_so(plan, monkeypatch, load, is_busy):
    monkeypatch.setattr(plan_command, "describe_cpu_state", lambda: CpuState(load=load))
    monkeypatch.setattr(plan_command, "describe_cpu", lambda: SimpleNamespace(cores_of_machine=2))
    assert ("keeps this machine busy (load 3.7 on 2 cores)" in plan(*GOOD)[1].err) is is_busy


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([*GOOD, "7,a text,,1.5"], {}, "rows.csv, row 81 (line 82): the label is empty"),
        (
            [f"{number},text {number},a,0" for number in range(80)],
            {"label": "id"},
            "it identifies rows and is no class",
        ),
        (GOOD, {"kind": "regression"}, "None of the 80 rows fits the task"),
    ],
)
def test_what_a_run_refuses_is_refused(plan, rows, settings, message):
    code, shown = plan(*rows, **settings)
    assert code == 1
    assert message in shown.err


def test_large_files_are_left_to_the_run(plan, monkeypatch):
    monkeypatch.setattr(plan_command, "READ_AT_ONCE", 100)
    code, shown = plan(*GOOD, "7,a text,,1.5")
    assert code == 0
    assert "the run checks the rows" in shown.out + shown.err
