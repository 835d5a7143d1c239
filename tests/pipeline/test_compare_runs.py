"""`compress report A B`: runs side by side, paired where their test rows are equal."""

import json
import re
import shutil
from pathlib import Path

import pytest

from compress.cli import main
from compress.report.report_index import COLUMNS
from compress.report.report_schema import read_report


@pytest.fixture(scope="module")
def runs(finished_run: Path, tmp_path_factory) -> Path:
    """The finished run, and one of the same data with other settings."""
    folder = tmp_path_factory.mktemp("compared")
    shutil.copytree(finished_run.parent, folder, symlinks=True, dirs_exist_ok=True)
    words = ["run", str(folder / "tiny.yaml"), "--runs", str(folder / "runs"), "--format", "quiet"]
    settings = ["name=other", "distill.epochs=3", "publish=null", "measure.memory=[]"]
    changes = [word for setting in settings for word in ("--set", setting)]
    assert main([*words, *changes]) in (0, 3)
    return folder / "runs"


def compared(runs, capsys, *words, code=0):
    assert main(["report", *words, "--runs", str(runs)]) == code
    return capsys.readouterr()


def test_what_differs_is_shown_and_written(runs, capsys):
    shown = compared(runs, capsys, "tiny", "other").out
    assert "distill.epochs" in shown
    assert "Winners on cpu" in shown
    assert "not tested" not in shown
    folder = runs / "tiny" / "compared" / "other"
    page = (folder / "comparison.html").read_text()
    assert "distill.epochs" in page
    assert "<script" not in page
    content = json.loads(compared(runs, capsys, "tiny", "other", "--format", "json").out)
    assert content == json.loads((folder / "comparison.json").read_text())
    settings = {each["path"] for each in content["recipe"]}
    assert "distill.epochs" in settings
    assert "teacher.source" not in settings
    assert content["data"] == []
    (target,) = content["targets"]
    first, second = target["sides"]
    assert first["pair"] is None
    pair = second["pair"]
    assert pair["difference"]["p_value"] <= 1
    assert second["faster"]["low"] < second["faster"]["high"]
    assert sorted(second["per_class"]) == sorted(first["per_class"])
    changed = pair["changed"]
    assert (folder / "rows.html").is_file() == bool(changed)
    assert (pair["gained"] + pair["lost"]) <= changed


def test_a_run_against_itself_differs_in_nothing(runs, capsys):
    content = json.loads(compared(runs, capsys, "tiny", str(runs / "tiny"), "--format", "json").out)
    assert (content["recipe"], content["data"]) == ([], [])
    (target,) = content["targets"]
    pair = target["sides"][1]["pair"]
    assert (pair["changed"], pair["difference"]["value"], pair["gained"], pair["lost"]) == (0, 0.0, 0, 0)


def test_rows_stay_in_the_runs_own_folder(runs, capsys, tmp_path):
    shown = compared(runs, capsys, "tiny", "other", "--to", str(tmp_path / "page"))
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == ["comparison.html", "comparison.json"]
    assert "rows.html" not in (tmp_path / "page" / "comparison.html").read_text()
    assert f"page: {tmp_path / 'page'}" in shown.err


@pytest.fixture
def changed(runs, tmp_path):
    """The runs, and what the second one's report says instead."""
    copy = shutil.copytree(runs, tmp_path / "runs", symlinks=True)

    def change(**changes):
        path = copy / "other" / "report.json"
        path.write_text(read_report(copy / "other").model_copy(update=changes).model_dump_json())
        return copy

    return change


def test_runs_of_different_tasks_are_refused_with_the_reason(runs, changed, capsys):
    task = read_report(runs / "other").task
    for update, reason in (
        ({"kind": "regression"}, "classification and regression"),
        ({"labels": ("x", *task.labels[1:])}, "their classes differ"),
        ({"metric": "macro_f1"}, "they are scored by"),
    ):
        folder = changed(task=task.model_copy(update=update))
        shown = compared(folder, capsys, "tiny", "other", code=2)
        assert "tiny and other are runs of different tasks" in shown.err
        assert reason in shown.err


@pytest.mark.parametrize(
    ("elsewhere", "why"),
    [
        (
            {"cpu": "Another CPU", "fingerprint": "another"},
            r"another machine: .+ cores?\), and Another CPU \(\d+ cores?\)",
        ),
        ({"fingerprint": "another"}, r"another machine: .+ cores?\), with other instructions"),
    ],
)
def test_speeds_of_another_machine_are_not_compared(runs, changed, capsys, elsewhere, why):
    report = read_report(runs / "other")
    folder = changed(
        machine=report.machine.model_copy(update=elsewhere),
        surroundings=report.surroundings.model_copy(update=elsewhere) if report.surroundings else None,
    )
    shown = json.loads(compared(folder, capsys, "tiny", "other", "--format", "json").out)
    side = shown["targets"][0]["sides"][1]
    assert side["faster"] is None
    assert re.fullmatch(why, side["not_timed_alike"])
    assert side["p50"]["value"] > 0


def test_without_its_answers_a_run_is_compared_and_not_paired(runs, tmp_path, capsys):
    copy = shutil.copytree(runs, tmp_path / "runs", symlinks=True)
    for path in (copy / ".steps").glob("score-*"):
        shutil.rmtree(path)
    shown = json.loads(compared(copy, capsys, "tiny", "other", "--format", "json").out)
    side = shown["targets"][0]["sides"][1]
    assert side["pair"] is None
    assert "is not in .steps any more" in side["not_paired"]


def test_other_rows_of_test_are_not_paired(runs, tmp_path, changed, capsys):
    folder = changed(data=read_report(runs / "other").data.model_copy(update={"digest": "0" * 64}))
    shown = json.loads(compared(folder, capsys, "tiny", "other", "--format", "json").out)
    assert shown["targets"][0]["sides"][1]["pair"] is not None  # the digest differs, the rows of test do not
    assert {each["path"] for each in shown["data"]} == {"digest"}


@pytest.mark.slow
def test_a_disturbed_timing_is_marked(runs, changed, capsys):
    results = [
        each.model_copy(update={"latency": each.latency.model_copy(update={"status": "unstable"})})
        for each in read_report(runs / "other").results
    ]
    shown = compared(changed(results=tuple(results)), capsys, "tiny", "other").out
    assert "≈ 0." in shown


def test_a_run_without_measurements_is_shown_without_figures(runs, changed, capsys):
    folder = changed(results=(), verdicts=())
    content = json.loads(compared(folder, capsys, "tiny", "other", "--format", "json").out)
    side = content["targets"][0]["sides"][1]
    assert (side["winner"], side["score"], side["p50"], side["faster"]) == (None, None, None, None)
    assert side["not_timed_alike"] == "one of them was not timed"
    assert "other has no winner on cpu" in side["not_paired"]
    assert compared(folder, capsys, "tiny", "other").out


def test_targets_in_common_are_needed(runs, changed, capsys):
    report = read_report(runs / "other")
    renamed = report.targets[0].model_copy(update={"title": "phone"})
    assert "no target in common" in compared(changed(targets=(renamed,)), capsys, "tiny", "other", code=2).err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tiny", "nobody"], "no finished run is called 'nobody'"),
        (["tiny", "/etc/hostname"], "there is no report"),
    ],
)
def test_bad_input_is_one_message(words, message, runs, capsys):
    assert main(["report", *words, "--runs", str(runs)]) in (1, 2)
    assert message in capsys.readouterr().err


def test_a_report_of_a_newer_version_is_refused(runs, tmp_path, capsys):
    copy = shutil.copytree(runs, tmp_path / "runs", symlinks=True)
    path = copy / "other" / "report.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99}))
    assert "written by a newer version of compress" in compared(copy, capsys, "tiny", "other", code=1).err


def test_a_report_goes_to_a_folder_of_reports(runs, tmp_path, capsys):
    to = tmp_path / "reports"
    assert main(["report", "tiny", "--runs", str(runs), "--to", str(to)]) == 0
    names = {path.name for path in (to / "tiny").iterdir()}
    assert names == {"report.html", "report.json", "report.md", "speed.svg"}
    assert "[tiny](tiny/report.md)" in (to / "index.md").read_text()
    assert (to / "index.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
    assert main(["report", "other", "--runs", str(runs), "--to", str(to)]) == 0
    assert "[other](other/report.md)" in (to / "index.md").read_text()
    (tmp_path / "file").write_text("")
    assert main(["report", "tiny", "--runs", str(runs), "--to", str(tmp_path / "file")]) in (1, 2)
    assert main(["report", "tiny", "--runs", str(runs), "--to", str(runs)]) == 2  # the run itself
    assert (runs / "tiny" / "lock.json").is_file()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "tiny").write_text("mine")
    assert main(["report", "tiny", "--runs", str(runs), "--to", str(tmp_path / "one")]) == 2
    (tmp_path / "mine" / "tiny").mkdir(parents=True)
    assert main(["report", "tiny", "--runs", str(runs), "--to", str(tmp_path / "mine")]) == 2
    assert "unexpected failure" not in capsys.readouterr().err


def test_the_page_is_opened(runs, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert main(["report", "tiny", "--runs", str(runs), "--open"]) == 0
    assert main(["report", "tiny", "other", "--runs", str(runs), "--open"]) == 0
    pages = ["tiny/report.html", "tiny/compared/other/comparison.html"]
    assert opened == [(runs / page).as_uri() for page in pages]
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert main(["report", "tiny", "--runs", str(runs), "--open"]) == 0
    assert "no browser could be started" in capsys.readouterr().err
