"""Real workers on tiny models; what is asserted never depends on how fast they are."""

import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from compress.errors import UsageError
from compress.measure import Job, ratio, time_jobs
from compress.measure.timing import schedule
from compress.measure.timing import worker_process as link_module
from compress.measure.timing.latency import Latency
from compress.measure.timing.timing_session import Session
from compress.measure.timing.worker_process import WorkerLost, WorkerProcess, error_line, worker_environment
from compress.measure.timing.worker_protocol import Command, Reply, WorkerSpec
from compress.model_folder.model_info import VariantInfo
from compress.recipe.measure_schema import Measure
from compress.runtime.predictor import Placement

QUICK = Measure(rounds=3, processes=1, seconds=0.02, bootstrap=100)
TEXTS = ["good film", "a very bad plot", "the plot is not good", "film"]
HERE = Placement()


@pytest.fixture(scope="module")
def together(small, wide, tmp_path_factory) -> dict[str, Latency]:
    """One session: two models that work, and three that fail each in its own way."""
    broken = tmp_path_factory.mktemp("broken")
    for path in small.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    (broken / "model.onnx").write_bytes(b"not a model")
    torch_variant = VariantInfo(name="torch-fp32", format="torch", precision="fp32", runtime="torch")
    jobs = [
        Job("small", small, None, HERE),
        Job("broken", broken, None, HERE),
        Job("wide", wide, None, HERE),
        Job("mismatch", small, torch_variant, HERE),
        Job("gpu", small, None, Placement("cuda")),
        Job("crowd", small, None, Placement(threads=4096)),
    ]
    return time_jobs(jobs, TEXTS, QUICK)


def test_every_job_gets_an_answer_in_order(together):
    assert list(together) == ["small", "broken", "wide", "mismatch", "gpu", "crowd"]


@pytest.mark.parametrize("key", ["small", "wide"])
def test_measured_fields(together, key):
    result = together[key]
    assert result.status in ("measured", "unstable")
    assert result.timed
    assert result.model is not None
    assert result.end_to_end is not None
    assert len(result.model.round_medians) == QUICK.rounds
    assert result.model.calls % len(TEXTS) == 0  # whole passes: every length counts as often as any other
    assert result.rows_per_second is not None
    assert result.load_seconds is not None
    assert result.load_seconds > 0
    assert result.runs_with["runtime"] == "onnxruntime"
    assert result.runs_with["threads"] == 1
    assert (result.peak_memory is None) == (sys.platform == "win32")
    assert result.device_memory is None


def test_a_ratio_comes_from_one_session(together):
    result = ratio(together["wide"], together["small"])
    assert result is not None
    assert result.low <= result.value <= result.high


def test_failures_are_reported_and_do_not_end_the_session(together):
    assert together["broken"].status == "failed"
    assert "cannot read" in (together["broken"].reason or "")
    assert together["mismatch"].status == "failed"
    assert "is in the format onnx" in (together["mismatch"].reason or "")
    assert not together["broken"].timed


def test_missing_devices_and_cores_are_not_measured(together):
    assert together["gpu"].status == "not measured"
    assert "CUDA" in (together["gpu"].reason or "")
    assert together["crowd"].status == "not measured"
    assert "4096 threads were requested" in (together["crowd"].reason or "")


def test_a_fixed_length_has_no_end_to_end(small):
    result = time_jobs([Job("a", small, None, HERE, batch=2, length=7)], [], QUICK)["a"]
    assert result.end_to_end is None
    assert result.model is not None


def test_bare_file_is_timed(small):
    assert time_jobs([Job("a", small / "model.onnx", None, HERE, length=5)], [], QUICK)["a"].timed


def each_generation_starts(patch):
    """Its processes anew, however long that takes on a busy machine."""
    patch.setattr(schedule, "generations_lived", lambda start_seconds: 1)


@pytest.fixture(scope="module")
def generations(small, wide) -> dict[str, Latency]:
    """Three generations of processes, and callers at the end."""
    settings = Measure(rounds=6, processes=3, seconds=0.02, bootstrap=100, callers=(1, 3))
    with pytest.MonkeyPatch.context() as patch:
        each_generation_starts(patch)
        return time_jobs([Job("small", small, None, HERE), Job("wide", wide, None, HERE)], TEXTS, settings)


def test_rounds_are_spread_over_fresh_processes(generations):
    timing = generations["small"].model
    assert timing is not None
    assert timing.processes == (0, 0, 1, 1, 2, 2)
    assert len(timing.round_medians) == 6
    medians = timing.undelayed_medians
    assert len(medians) == (6 if sys.platform == "linux" else 0)
    assert all(left <= whole for left, whole in zip(medians, timing.round_medians, strict=bool(medians)))


def test_ratios_survive_a_file(generations):
    again = {key: Latency.model_validate_json(one.model_dump_json()) for key, one in generations.items()}
    assert again == generations
    for part in ("model", "end_to_end"):
        result = ratio(again["wide"], again["small"], part)
        assert result == ratio(generations["wide"], generations["small"], part)
        assert result is not None
    assert ratio(again["wide"], again["small"], "device") is None


def test_callers_run_concurrently(generations):
    for one in generations.values():
        assert [load.callers for load in one.under_load] == [1, 3]
        assert all(load.rows_per_second > 0 and load.calls >= 2 * load.callers for load in one.under_load)
        assert all(load.p95 is not None and load.p95 >= load.p50 for load in one.under_load)


def test_callers_that_cannot_be_timed_cost_no_other_figure(small, monkeypatch):
    request = WorkerProcess.request

    def refused(self, message, timeout):
        if message.do == "load" and message.callers == 3:
            raise WorkerLost("3 callers at once cannot be started here")
        return request(self, message, timeout)

    monkeypatch.setattr(WorkerProcess, "request", refused)
    settings = Measure(rounds=3, seconds=0.02, bootstrap=100, callers=(1, 3))
    result = time_jobs([Job("small", small, None, HERE)], TEXTS, settings)["small"]
    assert result.timed
    assert result.model is not None
    assert result.resident_memory is not None
    assert [load.callers for load in result.under_load] == [1]
    assert "3 callers at once were not timed: 3 callers at once cannot be started here" in result.reason


@pytest.mark.slow
def test_start_order_changes(small, wide, monkeypatch):
    each_generation_starts(monkeypatch)
    started: list[str] = []
    sent = WorkerProcess.send

    def noted(self, message):
        if isinstance(message, WorkerSpec):
            started.append(message.job.key)
        sent(self, message)

    monkeypatch.setattr(WorkerProcess, "send", noted)
    settings = Measure(rounds=4, processes=4, seconds=0.02, bootstrap=100)
    time_jobs([Job("small", small, None, HERE), Job("wide", wide, None, HERE)], TEXTS, settings)
    pairs = list(zip(started[::2], started[1::2], strict=True))
    assert len(pairs) == 4
    assert pairs[1] == pairs[0][::-1]
    assert pairs[3] == pairs[2][::-1]


def test_session_reports_memory_load_time_and_noise(generations):
    for one in generations.values():
        assert one.first_answer_seconds is not None
        assert one.load_seconds is not None
        assert one.first_answer_seconds > one.load_seconds
        assert one.resident_memory is not None
        assert len(one.lengths) == len(TEXTS)
        assert one.precision is not None
        assert one.seconds is not None
        assert one.energy
        assert (one.noise is None) == (sys.platform not in ("linux", "darwin"))


@pytest.mark.slow
def test_budget_runs_as_many_rounds_as_fit(small, wide):
    jobs = [Job("small", small, None, HERE), Job("wide", wide, None, HERE)]
    result = time_jobs(jobs, TEXTS, Measure(budget=6.0, bootstrap=100))
    if any(one.reason and "too small" in one.reason for one in result.values()):
        pytest.skip("starting two workers took six seconds here")
    rounds = {len(one.model.round_medians) for one in result.values() if one.model}
    assert len(rounds) == 1
    assert rounds.pop() >= 3


def test_too_small_budget_is_not_measured(small, wide):
    jobs = [Job("small", small, None, HERE), Job("wide", wide, None, HERE)]
    for one in time_jobs(jobs, TEXTS, Measure(budget=0.05)).values():
        assert one.status == "not measured"
        assert (one.reason or "").startswith("the budget of 0.05 s for timing is too small for 2 models")


@pytest.mark.slow
def test_a_budget_that_cannot_start_all_times_those_named_first(small, wide, monkeypatch):
    """On a GPU a process takes ten seconds to start: a budget that all of them use up would time none."""
    monkeypatch.setattr(schedule, "STARTING_SHARE", 0.0)
    jobs = [Job(key, folder, None, HERE) for key, folder in (("small", small), ("wide", wide), ("again", small))]
    result = time_jobs(jobs, TEXTS, Measure(budget=6.0, bootstrap=100, seconds=0.02), seed=1)
    if "too small" in (result["small"].reason or ""):
        pytest.skip("starting two workers took six seconds here")
    assert [one.timed for one in result.values()] == [True, True, False]
    assert "the budget of 6 s for timing went to the models before it" in (result["again"].reason or "")


@pytest.mark.parametrize(
    ("seconds", "timed"),
    [
        ((1, 1, 1, 9), 4),  # the last one uses up the budget: the others are not lost for that
        ((1, 1, 1, 19), 0),
        ((3, 4, 4, 4), 2),  # a ratio needs two, the first among them
        ((11, 1, 1, 1), 0),
        ((5, 0.5, 0.5, 0.5), 4),  # the first to import a library is no measure of the others
    ],
)
def test_models_that_have_started_are_timed_a_little_beyond_the_budget(seconds, timed):
    takes = iter(seconds)

    class Pool:
        jobs, calls = dict.fromkeys("abcd"), ()

        def __init__(self):
            self.results, self.all = {}, {}

        @property
        def active(self):
            return {key: worker for key, worker in self.all.items() if key not in self.results}

        def start(self, key):
            session.begin -= (start := next(takes))
            self.all[key] = SimpleNamespace(start_seconds=start, call_seconds=0.001)

        def warm_up(self, keys):
            pass

    pool = Pool()
    progress = SimpleNamespace(advance=lambda note: None)
    session = Session(pool, Measure(budget=10.0), 10.0, 0, progress, time.perf_counter())
    assert session.start() == bool(timed)
    assert len(pool.active if timed else ()) == timed
    assert {*"ab"} <= pool.active.keys() or not timed


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits what a process allocates")
def test_too_large_batch_fails_alone(small):
    huge = Job("huge", small, None, HERE, batch=1 << 27, length=512)
    fits = Job("fits", small, None, HERE, batch=1, length=8)
    result = time_jobs([huge, fits], [], QUICK)
    assert result["huge"].status == "failed"
    assert "does not fit in memory" in (result["huge"].reason or "")
    assert result["fits"].timed


def test_dying_worker_fails_alone(small, wide, monkeypatch):
    each_generation_starts(monkeypatch)
    original = WorkerProcess.send

    def deadly(self, message):
        original(self, message)
        if isinstance(message, WorkerSpec) and message.imports and message.job.folder == wide:
            self._process.kill()

    monkeypatch.setattr(WorkerProcess, "send", deadly)
    settings = Measure(rounds=4, processes=2, seconds=0.02, bootstrap=100)
    result = time_jobs([Job("small", small, None, HERE), Job("wide", wide, None, HERE)], TEXTS, settings)
    assert result["wide"].status == "failed"
    assert "SIGKILL" in (result["wide"].reason or "")
    assert result["small"].model is not None
    assert len(result["small"].model.round_medians) == 4


@pytest.mark.slow
@pytest.mark.parametrize("when", ["start", "turn"])
def test_worker_that_dies_once_is_restarted(small, wide, monkeypatch, when):
    each_generation_starts(monkeypatch)
    original, killed = WorkerProcess.send, []

    def deadly(self, message):
        spec = isinstance(message, WorkerSpec) and message.imports and message.job.folder == wide
        turn = isinstance(message, Command) and message.do == "turn"
        if not killed and (spec if when == "start" else turn):
            killed.append(self)
            self._process.kill()
        original(self, message)

    monkeypatch.setattr(WorkerProcess, "send", deadly)
    settings = Measure(rounds=4, processes=2, seconds=0.02, bootstrap=100)
    result = time_jobs([Job("small", small, None, HERE), Job("wide", wide, None, HERE)], TEXTS, settings)
    assert all(one.model is not None and len(one.model.round_medians) == 4 for one in result.values())
    (reason,) = [one.reason for one in result.values() if "lost and restarted" in (one.reason or "")]
    assert "SIGKILL" in reason
    assert ratio(result["wide"], result["small"]) is not None


def test_interrupted_session_ends_its_workers(small, wide, monkeypatch):
    links: list[WorkerProcess] = []
    entered = WorkerProcess.__enter__

    def noted(self):
        links.append(self)
        return entered(self)

    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(WorkerProcess, "__enter__", noted)
    monkeypatch.setattr("compress.measure.timing.worker_pool.WorkerPool.take_turns", interrupted)
    with pytest.raises(KeyboardInterrupt):
        time_jobs([Job("small", small, None, HERE), Job("wide", wide, None, HERE)], TEXTS, QUICK)
    assert len(links) == 2
    assert all(link._process.poll() is not None for link in links)


def test_delay_is_added_after_a_call():
    from compress.measure.timing.timing_loop import with_delay

    assert with_delay(len, 0.0) is len
    assert with_delay(lambda call: call + 1, 0.5)(1) == 2


def test_duplicate_names_and_missing_texts_are_refused(small):
    with pytest.raises(UsageError, match="two jobs have the name a"):
        time_jobs([Job("a", small, None, HERE)] * 2, TEXTS, QUICK)
    with pytest.raises(UsageError, match="need texts"):
        time_jobs([Job("a", small, None, HERE)], [], QUICK)


WORKER = "compress.measure.timing.worker", Reply, 1
"""A worker with one thread."""


def spec(folder) -> WorkerSpec:
    return WorkerSpec(job=Job("a", folder, None, HERE, length=4), calls=(), seed=0, launched=0.0)


def test_killed_worker_is_reported_with_its_signal(small):
    with WorkerProcess(*WORKER) as link:
        link.request(spec(small), 60)
        link._process.send_signal(signal.SIGKILL)
        with pytest.raises(WorkerLost, match="SIGKILL, as happens when memory runs out"):
            link.request(Command(do="turn", calls=(0,), seconds=0.01), 60)


def test_silent_worker_times_out(small):
    with WorkerProcess(*WORKER) as link:
        link.request(spec(small), 60)
        link._process.send_signal(signal.SIGSTOP)
        with pytest.raises(WorkerLost, match="no reply within 0 s"):
            link.request(Command(do="turn", calls=(0,), seconds=0.01), 0.2)
    assert link._process.returncode == -signal.SIGKILL


def test_crash_is_reported_by_its_last_line(small):
    with WorkerProcess(*WORKER) as link:
        link.request(spec(small), 60)
        with pytest.raises(WorkerLost, match=r"exit code 1: .*ValidationError"):
            link.request(WorkerSpec(**spec(small).model_dump()), 60)


def test_error_line_names_the_exception():
    output = "loading\nTraceback (most recent call last):\n  File a\nValueError: two\nlines\n"
    assert error_line(output) == "ValueError: two"
    assert error_line("Segmentation fault\n\n") == "Segmentation fault"
    assert error_line("") == ""


def test_worker_ends_after_an_interruption(small):
    link = WorkerProcess(*WORKER)
    with pytest.raises(KeyboardInterrupt):
        _interrupted(link, small)
    assert link._process.poll() is not None


def _interrupted(link: WorkerProcess, small) -> None:
    with link:
        link.request(spec(small), 60)
        raise KeyboardInterrupt


def test_workers_leave_a_distributed_launch_and_fix_their_threads(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    result = worker_environment(threads=2)
    assert "RANK" not in result
    assert {result[name] for name in link_module.THREAD_VARIABLES} == {"2"}


def test_an_exported_model_is_timed_without_torch(small):
    blocked = "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'datasets', 'sklearn']))"
    commands = "\n".join([spec(small).model_dump_json(), Command(do="close").model_dump_json(), ""])
    result = subprocess.run(
        [sys.executable, "-c", f"{blocked}; from compress.measure.timing.worker import main; main()"],
        input=commands,
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    ready, last = (Reply.model_validate_json(line) for line in result.stdout.splitlines())
    assert ready.latency.load_seconds > 0
    assert last.latency.peak_memory is not None


def test_library_output_does_not_corrupt_replies(small):
    noisy = "import sys, os; from compress.measure.timing import worker; opened = worker.open_model\n"
    noisy += "def loud(spec):\n    print('noise'); os.write(1, b'more'); return opened(spec)\n"
    noisy += "worker.open_model = loud; worker.main()"
    commands = "\n".join([spec(small).model_dump_json(), Command(do="close").model_dump_json(), ""])
    result = subprocess.run(
        [sys.executable, "-c", noisy], input=commands, capture_output=True, check=True, encoding="utf-8"
    )
    assert len(result.stdout.splitlines()) == 2
    assert "noise" in result.stderr
