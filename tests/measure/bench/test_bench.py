import argparse
import json
import shutil

import pytest

from compress import measure
from compress.console import Console
from compress.errors import CompressError, DeviceUnavailable, UsageError
from compress.measure.bench import bench, bench_command
from compress.measure.bench.bench_command import bench_and_show
from compress.measure.bench.bench_result import Bench
from compress.measure.bench.parse_options import GridOptions
from compress.measure.result_base import Score
from compress.measure.roofline.roofline import MachineLimits
from compress.measure.timing.latency import Latency, Timing
from compress.recipe.measure_schema import Measure, Target

CPU = Target(device="cpu")
SHORT = Measure(rounds=3, seconds=0.02)


@pytest.fixture
def sessions(monkeypatch):
    """A session that times nothing: it tells what it was asked, and every job is as slow as its name is long."""
    seen = []

    def stand_in(jobs, texts, settings, *, seed, console):
        seen.append((jobs, texts, settings))
        return {job.key: Latency(status="measured", model=timing(len(job.key)), lengths=(8,)) for job in jobs}

    monkeypatch.setattr(measure.bench, "time_jobs", stand_in)
    return seen


def run(models, console, **given):
    """Run the command with these options."""
    defaults = {"targets": [], "grid": [], "limits": False}
    names = ("callers", "rounds", "seconds", "budget", "texts", "against", "output")
    bench_and_show(argparse.Namespace(models=models, **(dict.fromkeys(names) | defaults | given)), console)


def timing(value):
    score = Score(value=value, low=0.9 * value, high=1.1 * value)
    return Timing(p50=score, p95=None, p99=None, spread=0.0, calls=9, round_medians=(value, value, value))


@pytest.mark.slow
def test_models_side_by_side_as_ratios_to_the_first(small, wide, tmp_path):
    missing = str(tmp_path / "gone")
    result = bench([str(wide), str(small), missing], settings=SHORT)
    (session,) = result.targets
    assert list(session.models) == [str(wide), str(small), missing]
    assert session.models[str(wide)].ratio.value == pytest.approx(1.0)
    ratio = session.models[str(small)].ratio
    assert ratio.low <= ratio.value <= ratio.high
    assert session.models[missing].latency.status == "failed"
    assert session.models[missing].ratio is None
    assert result.models[0].footprint.bytes_weights > result.models[1].footprint.bytes_weights
    assert result.models[2].footprint is None


@pytest.mark.slow
def test_texts_give_their_own_lengths(small, tmp_path):
    (tmp_path / "texts.txt").write_text("good film\n\na very bad plot\n")
    result = bench([str(small)], CPU, texts=tmp_path / "texts.txt", settings=SHORT)
    assert result.texts == 2
    assert result.targets[0].length == "data"
    assert result.targets[0].models[str(small)].latency.end_to_end.calls > 0


@pytest.mark.slow
@pytest.mark.parametrize("bare", [False, True])
def test_a_tokenizer_is_enough_for_the_lengths_of_texts(small, tmp_path, bare):
    (tmp_path / "texts.txt").write_text("good film\ta plot\na very bad plot\tgood\n")
    foreign = shutil.copytree(small, tmp_path / "foreign")
    (foreign / "compress.json").unlink()
    name = str(foreign / "model.onnx" if bare else foreign)
    latency = bench([name], CPU, texts=tmp_path / "texts.txt", settings=SHORT).targets[0].models[name].latency
    assert latency.timed
    assert sorted(latency.lengths) == [7, 8]
    assert latency.end_to_end is None
    (foreign / "tokenizer.json").unlink()
    latency = bench([name], CPU, texts=tmp_path / "texts.txt", settings=SHORT).targets[0].models[name].latency
    assert (latency.status, "no tokenizer.json" in latency.reason) == ("not measured", True)


@pytest.mark.slow
def test_result_can_be_read_again(small):
    result = bench([str(small)], settings=SHORT)
    assert Bench.model_validate_json(result.model_dump_json()) == result


def test_a_target_without_a_length_is_timed_at_128_pieces(sessions, small):
    bench([str(small)], [CPU, Target(device="cpu", length=16)])
    assert [jobs[0].length for jobs, _, _ in sessions] == [128, 16]


def test_targets_own_length_takes_precedence_over_texts(sessions, small, tmp_path):
    (tmp_path / "texts.txt").write_text("good film\n")
    bench([str(small)], [CPU, Target(device="cpu", length=16)], texts=tmp_path / "texts.txt")
    assert [jobs[0].length for jobs, _, _ in sessions] == [None, 16]


def test_grid_runs_once_per_device_and_threads(sessions, small):
    targets = [Target(device="cpu", batch=8), Target(device="cpu", length=32), Target(device="cpu", threads=2)]
    result = bench(
        [str(small)], targets, grid=GridOptions(batch=(1, 8), length=(16, 32)), settings=Measure(callers=[1, 2])
    )
    cells = [(one.threads, one.batch, one.length) for one in result.grid]
    assert cells == [(threads, batch, length) for threads in (1, 2) for batch in (1, 8) for length in (16, 32)]
    assert len(sessions) == 3 + 8 - 1  # one cell is the second target's own
    assert [bool(settings.callers) for _, _, settings in sessions] == [True] * 3 + [False] * 7


def test_missing_grid_axis_is_the_targets_own(sessions, small):
    result = bench([str(small)], Target(device="cpu", length=16), grid=GridOptions(batch=(1, 4)))
    assert [(one.batch, one.length) for one in result.grid] == [(1, 16), (4, 16)]


def test_length_beyond_the_maximum_is_not_measured(sessions, small, wide, tmp_path):
    folder = tmp_path / "roberta"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"model_type": "roberta", "max_position_embeddings": 66, "pad_token_id": 1, "vocab_size": 9}'
    )
    (folder / "model.onnx").write_bytes((small / "model.onnx").read_bytes())
    for length, status in ((64, "measured"), (65, "not measured")):
        result = bench([str(folder), str(wide)], Target(device="cpu", length=length))
        assert result.targets[0].models[str(folder)].latency.status == status
        assert result.targets[0].models[str(wide)].latency.status == "measured"
    assert "64 pieces at most" in result.targets[0].models[str(folder)].latency.reason


def test_cached_limits_are_shown_and_missing_ones_measured_on_request(sessions, small, monkeypatch):
    limits = MachineLimits(
        device="cpu", device_name="a processor", threads=1, bandwidth=1e9, measured_at="now", fingerprint="f"
    )
    monkeypatch.setattr(measure.bench, "cached_limits", lambda threads, device: None)
    monkeypatch.setattr(measure.bench, "machine_limits", lambda threads, device, console: limits)
    assert bench([str(small)]).limits == ()
    bare = str(small / "model.onnx")
    result = bench([str(small), bare], limits=True)
    assert result.limits == (limits,)
    assert result.targets[0].models[str(small)].shares.bandwidth is not None
    assert "shape is unknown" in result.targets[0].models[bare].shares.reason


def test_unmeasurable_limits_are_a_warning(sessions, small, monkeypatch, capsys):
    def refuse(threads, device, console):
        raise DeviceUnavailable("no such device.")

    monkeypatch.setattr(measure.bench, "machine_limits", refuse)
    assert bench([str(small)], limits=True, console=Console()).limits == ()
    assert "no such device" in capsys.readouterr().err


def test_texts_are_for_models_with_a_tokenizer(sessions, small, tmp_path):
    (tmp_path / "texts.txt").write_text("good film\n")
    bare = str(shutil.copy(small / "model.onnx", tmp_path))
    result = bench([bare, str(small)], texts=tmp_path / "texts.txt")
    assert result.targets[0].models[bare].latency.status == "not measured"
    assert result.targets[0].models[str(small)].latency.timed


def test_results_are_passed_on_after_every_session(sessions, small):
    seen = []
    bench([str(small)], [CPU, Target(device="cpu", length=16)], grid=GridOptions(batch=(4,)), on_session=seen.append)
    assert [(len(one.targets), len(one.grid)) for one in seen] == [(1, 0), (2, 0), (2, 1), (2, 2)]


@pytest.mark.slow
def test_a_model_against_itself(small):
    result = bench([str(small), str(small)], settings=SHORT)
    assert list(result.targets[0].models) == [str(small), f"{small} (2)"]
    assert result.targets[0].models[f"{small} (2)"].ratio is not None


class TestCommand:
    def test_nothing_timed_is_a_failure_after_the_rows(self, tmp_path, capsys):
        with pytest.raises(CompressError, match="nothing could be timed"):
            run([str(tmp_path / "gone.onnx")], Console("quiet"))
        assert "there is no file" in capsys.readouterr().out

    def test_json_is_one_object(self, sessions, small, capsys):
        run([str(small)], Console("json"), grid=["batch=1,8"])
        output = json.loads(capsys.readouterr().out)
        assert output["schema_version"] == 1
        assert output["targets"][0]["models"][str(small)]["latency"]["status"] == "measured"
        assert [cell["batch"] for cell in output["grid"]] == [1, 8]
        assert output["surroundings"]["cpu"]

    @pytest.mark.parametrize(("format", "shown"), [("human", True), ("quiet", True), ("json", False)])
    def test_interruption_shows_finished_sessions(self, sessions, small, capsys, monkeypatch, tmp_path, format, shown):
        once = measure.bench.time_jobs

        def interrupted(*given, **named):
            if sessions:
                raise KeyboardInterrupt
            return once(*given, **named)

        monkeypatch.setattr(measure.bench, "time_jobs", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run([str(small)], Console(format), targets=["cpu", "cpu,batch=2"], output=tmp_path / "bench.json")
        assert ("measured" in capsys.readouterr().out) == shown
        assert len(Bench.model_validate_json((tmp_path / "bench.json").read_bytes()).targets) == 1

    def test_bench_command_equals_the_result(self, sessions, small, capsys, tmp_path):
        path = tmp_path / "bench.json"
        for _ in range(2):  # an earlier bench is replaced
            run([str(small)], Console("json"), output=path)
            assert json.loads(path.read_text()) == json.loads(capsys.readouterr().out)
        assert [each.name for each in tmp_path.iterdir()] == ["bench.json"]

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("bench.txt", "ends in .json"),
            ("none/bench.json", "does not exist or is not writable"),
            ("folder.json", "has other content"),
            ("config.json", "has other content"),
        ],
    )
    def test_invalid_outputs_are_refused(self, sessions, small, tmp_path, name, message):
        (tmp_path / "folder.json").mkdir()
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')
        with pytest.raises(UsageError, match=message):
            run([str(small)], Console("quiet"), output=tmp_path / name)
        assert not sessions
        assert (tmp_path / "config.json").read_text() == '{"model_type": "bert"}'

    def test_total_budget_of_several_sessions_is_announced(self, sessions, small, capsys):
        run([str(small)], Console(), grid=["batch=1,8,16"], budget="20s")
        assert "1 of 3: cpu, 1 thread, batch 1, 128 pieces (1 min remaining)" in capsys.readouterr().err

    def test_full_disk_loses_only_the_bench_command(self, sessions, small, capsys, monkeypatch, tmp_path):
        def full(path, content):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(bench_command, "atomic_write", full)
        with pytest.raises(CompressError, match=r"bench\.json cannot be written: No space left on device") as raised:
            run([str(small)], Console(), grid=["batch=1,8"], output=tmp_path / "bench.json")
        assert raised.value.exit_code == 1
        output = capsys.readouterr()
        assert "measured" in output.out
        assert output.err.count("No space left") == 1  # once for all sessions
        assert len(sessions) == 2
        assert list(tmp_path.iterdir()) == []

    def test_output_is_written_once_the_disk_has_space(self, sessions, small, monkeypatch, tmp_path):
        write, refused = bench_command.atomic_write, [True]

        def full_once(path, content):
            if refused:
                refused.pop()
                raise OSError(28, "No space left on device")
            write(path, content)

        monkeypatch.setattr(bench_command, "atomic_write", full_once)
        run([str(small)], Console("quiet"), grid=["batch=1,8"], output=tmp_path / "bench.json")
        assert len(Bench.model_validate_json((tmp_path / "bench.json").read_bytes()).grid) == 2
