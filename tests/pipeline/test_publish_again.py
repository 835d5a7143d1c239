"""Publishing a run again, and printing the folder of its winner."""

import json
from pathlib import Path

import pytest

from compress.cli import main
from compress.console import Console
from compress.errors import UsageError
from compress.model_folder.model_info import read_info, write_info
from compress.pipeline.steps.package_step import PACKAGE_FILE, copy_winners
from compress.pipeline.steps.publish_step import Destination, publish_winners
from compress.report.report_schema import read_report
from compress.storage.atomic_write import atomic_copy_folder


def test_another_targets_winner_is_another_version(finished_run: Path, tmp_path: Path) -> None:
    facts = read_report(finished_run)
    other = facts.model_copy(
        update={
            "targets": (*facts.targets, facts.targets[0].model_copy(update={"title": "phone"})),
            "verdicts": (*facts.verdicts, facts.verdicts[0].model_copy(update={"target": "phone"})),
            "results": (*facts.results, *(each.model_copy(update={"target": "phone"}) for each in facts.results)),
        }
    )
    run = tmp_path / "tiny"
    atomic_copy_folder(finished_run.resolve(), run)
    atomic_copy_folder(run / "winner" / "cpu", run / "winner" / "phone")
    write_info(run / "winner" / "phone", read_info(run / "winner" / "cpu").model_copy(update={"made_by": "phone"}))
    (run / "report.json").write_text(other.model_dump_json(indent=2))
    for target in ("cpu", "phone"):
        record = publish_winners(run, other, Destination(str(tmp_path / "zoo"), "tiny"), Console("quiet"), target)
        assert record.version == ("1" if target == "cpu" else "2")
        assert (read_info(tmp_path / "zoo" / record.folder).made_by == "phone") == (target == "phone")


def test_doubts_about_a_winner_are_repeated_where_it_is_published(finished_run: Path, tmp_path: Path, capsys) -> None:
    report, to = read_report(finished_run), Destination(str(tmp_path / "zoo"), "tiny")
    publish_winners(finished_run, report, to, Console("human"))
    assert "in doubt" not in capsys.readouterr().err
    verdict = report.verdicts[0].model_copy(update={"contradictions": ("recall of 'bad' fell by 20 points",)})
    unsure = tuple(
        each.model_copy(update={"gate": each.gate.model_copy(update={"outcome": "undecided"})}) if each.gate else each
        for each in report.results
    )
    publish_winners(
        finished_run, report.model_copy(update={"verdicts": (verdict,), "results": unsure}), to, Console("human")
    )
    warned = capsys.readouterr().err
    assert "warning: the winner on cpu is in doubt: recall of 'bad' fell by 20 points" in warned
    assert "warning: the winner on cpu is undecided: " in warned


def test_without_a_winner_there_is_no_folder_of_it_and_publishing_says_why(finished_run: Path, tmp_path: Path) -> None:
    (tmp_path / PACKAGE_FILE).write_text('{"winners": {}}')
    copy_winners(tmp_path, tmp_path / "run")
    assert not (tmp_path / "run" / "winner").exists()
    report = read_report(finished_run)
    none = report.verdicts[0].model_copy(update={"winner": None, "why": "every variant is ruled out"})
    without = report.model_copy(update={"verdicts": (none,)})
    with pytest.raises(UsageError, match="there is nothing to publish: every variant is ruled out"):
        publish_winners(tmp_path / "run", without, Destination(str(tmp_path / "zoo"), "tiny"), Console("quiet"))


def test_a_row_that_did_not_win_is_published(finished_run: Path, tmp_path: Path, capsys) -> None:
    report = read_report(finished_run)
    won = report.verdict("cpu").winner
    key = next(row.key for row in report.rows if row.variant.name == "onnx-fp32" and row.key != won)
    zoo = tmp_path / "zoo"
    command = ["publish", "tiny", "--runs", str(finished_run.parent / "runs"), "--to", str(zoo)]
    assert main([*command, "--row", key]) == 0
    assert read_report(zoo / "tiny@1" / "report").verdict("cpu").winner == key
    assert f"chosen by hand in place of {won}" in (zoo / "tiny@1" / "report" / "report.md").read_text()
    assert main(["verify", str(zoo / "tiny")]) == 0
    assert main(["predict", str(zoo / "tiny"), "good film"]) == 0
    capsys.readouterr()
    assert main(command) == 0  # the winner is another model, and another version
    assert capsys.readouterr().out == f"{zoo}/tiny@2\n"
    assert main([*command, "--version", "mine"]) == 0
    said = capsys.readouterr()
    assert "published before" in said.err
    assert said.out == f"{zoo}/tiny@2\n"
    assert main(["zoo", "ls", str(zoo), "--all", "--format", "json"]) == 0
    gates = [version["variants"][0]["gate"] for version in json.loads(capsys.readouterr().out)]
    assert gates == [report.result(each, "cpu").gate.state for each in (key, won)]
    assert main([*command, "--row", key, "--version", "2"]) == 2
    assert "tiny@2 exists in" in capsys.readouterr().err
    assert main([*command, "--row", "nobody/onnx-int8"]) == 2
    assert "has no row 'nobody/onnx-int8' on cpu" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--name", "--to", "--version"])
@pytest.mark.parametrize("value", ["../x", "", ".hidden", "a/b", "a" * 250, "a\n"])
def test_unusable_names_and_zoos_are_usage_errors(option, value, finished_run, capsys) -> None:
    if option == "--to":
        value = f"/dev/null/{value}"
    command = ["publish", "tiny", "--runs", str(finished_run.parent / "runs"), option, value]
    assert main(command) == 2
    assert "unexpected failure" not in capsys.readouterr().err


def test_publish_refuses_an_unknown_target(finished_run, tmp_path, capsys) -> None:
    command = ["publish", "tiny", "--runs", str(finished_run.parent / "runs"), "--to", str(tmp_path / "zoo")]
    assert main(command) == 0
    assert main([*command, "--target", "cuda"]) == 2
    assert "the run has no target 'cuda'" in capsys.readouterr().err


@pytest.mark.parametrize("name", [".", "report.json"])
def test_quiet_report_prints_the_winners_folder(name: str, finished_run: Path, capsys) -> None:
    assert main(["report", str(finished_run / name), "--format", "quiet"]) == 0
    assert Path(capsys.readouterr().out.strip()).is_dir()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("https://host/zoo", "publish: https://host/zoo is read only"),
        ("gs://bucket/zoo", "publish: gs://bucket/zoo cannot be reached: Please install gcsfs"),
        ("nobodys://bucket", "publish: nobodys://bucket is no place of a zoo: Protocol not known"),
    ],
)
def test_a_place_that_cannot_be_used_is_known_before_anything_runs(place, message, recipe_file, tmp_path, capsys):
    words = ["run", str(recipe_file), "--runs", str(tmp_path / "runs"), "--set", f"publish={place}"]
    assert main(words) in (1, 2)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs" / ".steps").exists()
