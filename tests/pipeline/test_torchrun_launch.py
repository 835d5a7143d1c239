from pathlib import Path

import pytest

from compress.console import Console
from compress.errors import CompressError
from compress.pipeline import run
from compress.pipeline.torchrun_launch import Launch

LAUNCHED = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize("environment", [{}, {"WORLD_SIZE": "2"}, {"RANK": "1"}, {"WORLD_SIZE": "", "RANK": ""}])
def test_plain_start_has_world_size_one(environment: dict[str, str]) -> None:
    assert Launch.from_environment(environment) == Launch(0, 1, "")


def test_ranks_of_one_launch_share_an_identity() -> None:
    first, second = (Launch.from_environment({**LAUNCHED, "RANK": rank}) for rank in ("0", "1"))
    assert first.is_main
    assert not second.is_main
    assert first.identity == second.identity != ""
    assert Launch.from_environment({**LAUNCHED, "MASTER_PORT": "29501"}).identity != first.identity


def test_other_processes_receive_the_main_process_decisions(tmp_path: Path) -> None:
    main, other = Launch(0, 2, "one"), Launch(1, 2, "one")
    main.announce(tmp_path, "finetune", "cached")
    main.announce(tmp_path, "distill", "run")
    main.announce(tmp_path, "stop", "stop")
    assert other.wait_for(tmp_path, "finetune") == "cached"
    assert other.wait_for(tmp_path, "distill") == "run"
    assert other.wait_for(tmp_path, "prune") == "stop"


def test_warning_is_printed_by_the_main_process_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def warns(plan: object, options: object, console: Console, launch: Launch) -> None:
        console.warn("something")

    monkeypatch.setattr(run, "_execute", warns)
    for rank in ("0", "1"):
        for name, value in (LAUNCHED | {"RANK": rank}).items():
            monkeypatch.setenv(name, value)
        run.execute(None, None, Console())  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("something") == 1


def test_process_stops_waiting_when_the_launcher_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter([10, 1, 1])
    monkeypatch.setattr("compress.pipeline.torchrun_launch.os.getppid", lambda: next(numbers))
    with pytest.raises(CompressError, match="launcher"):
        Launch(1, 2, "one").wait_for(tmp_path, "finetune")
