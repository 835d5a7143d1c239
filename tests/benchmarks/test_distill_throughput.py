"""The command line, the clock, ratios and the page; that all contestants minimise the same; no race is run."""

from pathlib import Path

import pytest
import torch

from benchmarks.distill_throughput import __main__ as command
from benchmarks.distill_throughput import race, shared_torch
from benchmarks.distill_throughput.contestants import CONTESTANTS, CpuPlacement, Failed
from benchmarks.distill_throughput.environments import TORCH, Environment, NotInstalled
from benchmarks.distill_throughput.race_cases import CASES
from benchmarks.distill_throughput.race_job import Clock, Job
from benchmarks.distill_throughput.race_results import Lane, Race, Ratio, ThroughputReport
from benchmarks.distill_throughput.throughput_page import page
from compress.losses.distillation.attention import attention
from compress.losses.distillation.hidden_state import hidden_state
from compress.losses.distillation.soft_label import soft_label
from compress.recipe.loss_schema import Attention, HiddenState, SoftLabel
from tests.losses.helpers import OUTPUTS


def test_defaults_are_all_contestants_in_all_races():
    given = command.parse([])
    assert given.contestants == tuple(CONTESTANTS)
    assert given.cases == tuple(CASES)
    assert (given.rounds, given.rows, given.batch, given.out) == (3, 1920, 32, Path("reports/distill_throughput"))


def test_a_trial_is_small_and_overwrites_no_report():
    given = command.parse(["--trial", "--only", "ours, plain"])
    assert (given.rounds, given.rows, given.out) == (1, 96, None)
    assert given.contestants == ("ours", "plain")
    assert command.command(given).startswith("python -m benchmarks.distill_throughput --trial --only ours,plain")


@pytest.mark.parametrize("words", [["--only", "them"], ["--races", "short"], ["--rounds", "0"], ["--rows", "x"]])
def test_bad_options_end_in_one_message(words, capsys):
    with pytest.raises(SystemExit) as end:
        command.parse(words)
    assert end.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_the_clock_runs_from_the_end_of_the_first_steps():
    times = iter([10.0, 12.0, 15.0])
    clock = Clock(untimed=64, now=lambda: next(times))
    for _ in range(4):
        clock.step(32)
    assert (clock.rows, clock.seconds) == (64, 5.0)  # the second step ends at 10, the fourth at 15


def test_a_job_is_read_as_it_was_written(tmp_path):
    job = Job(tmp_path / "t", tmp_path / "s", tmp_path / "rows", tmp_path, ((0, 1), (1, 3)), count=64, epochs=2)
    assert Job.read(job.write()) == job
    assert job.updates == 4


def test_rows_are_whole_batches():
    assert CASES["lengths"].rows(1920, 32) == 1920
    assert CASES["full"].rows(1920, 32) == 480
    assert CASES["full"].rows(10, 32) == 64


def test_goals_are_those_of_the_project():
    assert CASES["lengths"].goals == {"textbrewer": 20.0, "torchdistill": 5.0, "plain": 5.0}
    assert set(CASES["full"].goals.values()) == set(CASES["cache"].goals.values()) == {2.0}


@pytest.fixture
def race_result():
    lanes = (
        Lane(key="ours", about="us", precision="bf16", speeds=(100.0, 90.0, 120.0), scores=(0.9,)),
        Lane(key="plain", about="by hand", precision="fp32", speeds=(20.0, 20.0, 20.0)),
        Lane(key="textbrewer", about="them", reason="not run: it said no"),
    )
    return Race(key="lengths", title="Rows", rows=64, lanes=lanes, goals={"plain": 5.0, "textbrewer": 20.0})


def test_ratios_are_taken_within_rounds(race_result):
    plain, other = race_result.ratios
    assert plain.rounds == (5.0, 4.5, 6.0)
    assert (plain.value, plain.verdict) == (5.0, "met")
    assert other.verdict == "not measured"
    assert Ratio(against="plain", goal=5.0, rounds=(4.9,)).verdict == "missed"


def test_page_shows_speeds_spread_scores_and_why_a_contestant_did_not_run(race_result):
    report = ThroughputReport(
        begun_at="now", made_by="x", command="y", batch=32, threads=1, races=(race_result,), trial=True, seconds=9.0
    )
    text = page(report)
    assert "| ours: us (bf16) | 100.0 | 90.0 to 120.0 | 0.9000 |" in text
    assert "| plain | 5 | 5.00 | 4.50 to 6.00 | met |" in text
    assert "not run: it said no" in text
    assert "A trial" in text
    assert report.failed


def test_a_goal_that_is_missed_is_no_failure(race_result):
    ran = race_result.model_copy(update={"lanes": race_result.lanes[:2], "goals": {"plain": 500.0}})
    assert ran.ratios[0].verdict == "missed"
    assert not ran.failed


class InputsBuilder:
    """Stands in for the one that makes models."""

    def __init__(self, work):
        self.work = work

    def inputs_for(self, name):
        from benchmarks.distill_throughput.race_inputs import RaceInputs

        return RaceInputs(self.work, self.work, self.work, ((0, 1),), 25.0)

    def score(self, folder, trained=None):
        return 0.5

    def delete_files(self, folder):
        pass


def test_rounds_take_turns_and_who_fails_is_left_out_of_the_next(tmp_path, monkeypatch):
    calls = []

    def run(contestant, job, index):
        calls.append(contestant.name)
        if contestant.name == "textbrewer":
            raise Failed("textbrewer ended with 1: no")
        return {"rows": job.count - job.untimed, "seconds": 2.0, "precision": "fp32"}

    monkeypatch.setattr(race, "run", run)
    monkeypatch.setattr(race, "install", lambda contestant: None)
    setting = race.Setting(InputsBuilder(tmp_path), CpuPlacement(1, None), rounds=2, rows=160, batch=32)
    case = CASES["lengths"]
    *_, last = race.race(case, race.planned(case, tuple(CONTESTANTS), 160, 32), setting)
    first = ["ours", "textbrewer", "torchdistill", "plain", "ours"]  # the fifth lane is ours with a cached teacher
    assert calls == [*first, "ours", "torchdistill", "plain", "ours"]
    lanes = {lane.key: lane for lane in last.lanes}
    assert lanes["ours"].speeds == (32.0, 32.0)  # 160 rows less three steps, in two seconds
    assert (lanes["ours"].scores, lanes["cached"].scores) == ((0.5, 0.5), ())
    assert [ratio.goal for ratio in last.ratios] == [12.0, 3.0, 3.0]  # those of fp32
    assert lanes["textbrewer"].reason == "not run: textbrewer ended with 1: no"


def test_the_last_epoch_alone_is_timed(tmp_path):
    setting = race.Setting(InputsBuilder(tmp_path), CpuPlacement(1, None), rounds=1, rows=640, batch=32)
    lane = CASES["cache"].lanes[0]
    job = race.job_of(CASES["cache"], lane, 0, setting.inputs_builder.inputs_for("base"), setting)
    assert (job.count, job.epochs, job.untimed) == (160, 2, 160 + 3 * 32)
    assert job.cache


def test_a_race_without_what_it_needs_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.distill_throughput.race_cases.find_spec", lambda name: None)
    planned = race.planned(CASES["cache"], tuple(CONTESTANTS), 640, 32)
    assert planned.reason.startswith("not measured: ")
    assert not planned.failed
    setting = race.Setting(InputsBuilder(tmp_path), CpuPlacement(1, None), rounds=1, rows=640, batch=32)
    assert list(race.race(CASES["cache"], planned, setting)) == []


def test_an_environment_that_cannot_be_installed_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path))
    environment = Environment("tool", ("tool==1",))
    assert tmp_path in environment.folder.parents

    def make(folder, with_pip):
        (folder / "bin").mkdir(parents=True)
        environment.python.write_text("#!/bin/sh\necho 'ERROR: no such tool' >&2\nexit 1\n")
        environment.python.chmod(0o755)

    monkeypatch.setattr("benchmarks.distill_throughput.environments.venv.create", make)
    with pytest.raises(NotInstalled, match="no such tool"):
        environment.install()


def test_torch_is_always_pinned():
    environments = [each.environment for each in CONTESTANTS.values() if each.environment]
    assert len(environments) == 2
    for environment in environments:
        assert TORCH in environment.pins
        assert all("==" in pin for pin in (*environment.pins, *environment.no_dependencies))


def states(seed, rows=2, tokens=5, heads=2, size=4):
    generator = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(rows, heads, tokens, size, generator=generator) for _ in range(2))
    return {"query": query, "key": key, "hidden": torch.randn(rows, tokens, heads * size, generator=generator)}


def maps(part):
    return (part["query"] @ part["key"].transpose(-1, -2) * part["query"].shape[-1] ** -0.5).softmax(dim=-1)


def test_others_are_given_the_losses_that_we_minimise(tiny_task):
    ours, theirs = states(0), states(1)
    batch = {"input_ids": torch.ones(2, 5, dtype=torch.long), "attention_mask": torch.ones(2, 5, dtype=torch.long)}
    mask = batch["attention_mask"]
    assert torch.allclose(
        shared_torch.hidden_state(ours["hidden"], theirs["hidden"], mask),
        hidden_state(ours, theirs, batch, HiddenState()),
    )
    assert torch.allclose(
        shared_torch.attention(maps(ours), maps(theirs), mask), attention(ours, theirs, batch, Attention()), atol=1e-6
    )
    logits = [{"logits": torch.randn(2, 2, generator=torch.Generator().manual_seed(seed))} for seed in (2, 3)]
    expected = soft_label(
        *logits, batch, tiny_task.long, OUTPUTS["single_label_classification"], SoftLabel(temperature=4.0)
    )
    assert torch.allclose(shared_torch.soft_label(logits[0]["logits"], logits[1]["logits"], 4.0), expected, atol=1e-6)


def test_padding_counts_in_no_loss():
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    ours, theirs = (states(seed, rows=1)["hidden"] for seed in (0, 1))
    whole = shared_torch.hidden_state(ours[:, :3], theirs[:, :3], mask[:, :3])
    assert torch.allclose(shared_torch.hidden_state(ours, theirs, mask), whole)


def test_batches_are_as_long_as_their_longest_row():
    batch = shared_torch.collate([shared_torch.example([2, 7, 3], 1, 3), shared_torch.example([2, 3], 0, 2)])
    assert batch["input_ids"].tolist() == [[2, 7, 3], [2, 3, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["labels"].tolist() == [1, 0]
    assert shared_torch.example([2, 3], 0, 4)["input_ids"].tolist() == [2, 3, 0, 0]


def test_rows_are_filled_with_the_texts_behind_them(tiny_folder):
    from benchmarks.distill_throughput.race_inputs import filled
    from compress.data.tokenizer import TextTokenizer

    tokens = TextTokenizer.load(tiny_folder("bert"))
    rows = [{"text": "a bad film", "label": 0}, {"text": "great fun", "label": 1}]
    full = list(filled(rows, tokens, length=16))
    assert [row["label"] for row in full] == [0, 1]
    assert full[1]["text"].startswith("great fun a bad film great")
    assert all(len(tokens(row["text"], None, 16).input_ids) == 16 for row in full)
