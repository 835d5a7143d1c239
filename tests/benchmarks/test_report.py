"""The report that grows: what is on disk after each finding, and how a main ends; what was published before is read."""

import json
from pathlib import Path

import pytest

from benchmarks import markdown_page as pages
from benchmarks.distill_memory import MemoryReport
from benchmarks.distill_memory import page as memory_page
from benchmarks.distill_throughput.race_results import Lane, Race, ThroughputReport
from benchmarks.distill_throughput.throughput_page import page as throughput_page
from benchmarks.harness.harness_page import page as harness_page
from benchmarks.harness.harness_results import HarnessReport
from benchmarks.report_store import Store, beginning, carry_out, in_place
from compress.console import Console
from compress.errors import DataError

REPORTS = Path(__file__).parents[2] / "reports"


@pytest.fixture
def store(tmp_path):
    race = Race(key="one", title="One", rows=64, epochs=1, lanes=(Lane(key="ours", about="us"),), goals={})
    report = ThroughputReport(**beginning("command", trial=False), batch=32, threads=1, races=(race,))
    return Store(report, tmp_path / "out", throughput_page)


def test_every_finding_is_written(store, tmp_path):
    (race,) = store.report.races
    store.update(races=in_place(store.report.races, race.with_lane(Lane(key="ours", about="us", speeds=(25.0,)))))
    stored = json.loads((tmp_path / "out" / "report.json").read_text())
    assert stored["races"][0]["lanes"][0]["speeds"] == [25.0]
    assert "did not finish" in (tmp_path / "out" / "report.md").read_text()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json", "report.md"]


def test_without_a_folder_nothing_is_written(store, tmp_path):
    memory = Store(store.report, None, throughput_page)
    memory.update(seconds=1.0)
    assert memory.report.seconds == 1.0
    assert not list(tmp_path.iterdir())


def test_the_work_has_a_folder_that_goes_away(store):
    rooms, shown = [], []
    assert carry_out(store, Console("quiet"), rooms.append, lambda report, console: shown.append(report)) == 0
    assert not rooms[0].exists()
    assert shown[0].seconds is not None


@pytest.mark.parametrize(("failure", "code"), [(DataError("no rows."), 1), (KeyboardInterrupt(), 130)])
def test_whatever_stops_the_work_what_was_found_is_shown(store, failure, code, capsys):
    def work(folder):
        store.update(data="some rows")
        raise failure

    shown = []
    assert carry_out(store, Console("human"), work, lambda report, console: shown.append(report.data)) == code
    assert shown == ["some rows"]
    assert store.report.seconds is None
    assert ("no rows." if code == 1 else "are stored") in capsys.readouterr().err


def test_somebody_who_did_not_run_ends_in_one(store):
    def work(folder):
        (race,) = store.report.races
        store.update(races=(race.with_lane(Lane(key="ours", about="us", reason="not run: it said no")),))

    assert carry_out(store, Console("quiet"), work, lambda report, console: None) == 1


def test_tables_show_what_is_missing_and_stay_tables():
    rows = [{"what": "a | b", "result": None}, {"what": "two\nlines", "result": "1"}]
    assert pages.table(rows, ("what", "result"), ("result",)).splitlines() == [
        "| what | result |",
        "| --- | ---: |",
        "| a \\| b | - |",
        "| two lines | 1 |",
    ]


@pytest.mark.parametrize(
    ("name", "model", "page"),
    [
        ("harness", HarnessReport, harness_page),
        *((f"distill_throughput{kind}", ThroughputReport, throughput_page) for kind in ("", "_avx2", "_bf16")),
        ("distill_memory", MemoryReport, memory_page),
    ],
)
def test_published_reports_are_read(name, model, page):
    stored = (REPORTS / name / "report.json").read_text(encoding="utf-8")
    report = model.model_validate_json(stored)
    assert report.model_dump(mode="json").items() >= json.loads(stored).items()
    assert "## Machine" in page(report)
