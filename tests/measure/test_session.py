"""Real workers on tiny models; what is asserted never depends on how fast they are."""

import signal
import subprocess
import sys

import pytest

from compress.errors import UsageError
from compress.folder import VariantInfo
from compress.measure import Job, ratio, time_jobs
from compress.measure import link as link_module
from compress.measure.latency import Latency
from compress.measure.link import Link, Lost, last_words, worker_environment
from compress.measure.messages import Order, Reply, WorkerSpec
from compress.recipe.schema import Measure
from compress.runtime.predictor import Place

QUICK = Measure(rounds=3, seconds=0.02, bootstrap=100)
TEXTS = ["good film", "a very bad plot", "the plot is not good", "film"]
HERE = Place()


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
        Job("gpu", small, None, Place("cuda")),
        Job("crowd", small, None, Place(threads=4096)),
    ]
    return time_jobs(jobs, TEXTS, QUICK)


def test_every_job_gets_an_answer_in_order(together):
    assert list(together) == ["small", "broken", "wide", "mismatch", "gpu", "crowd"]


@pytest.mark.parametrize("key", ["small", "wide"])
def test_what_is_measured(together, key):
    found = together[key]
    assert found.status in ("measured", "unstable")
    assert found.timed
    assert found.model is not None
    assert found.end_to_end is not None
    assert len(found.model.round_medians) == QUICK.rounds
    assert found.model.calls % len(TEXTS) == 0  # whole passes: every length counts as often as any other
    assert found.rows_per_second == pytest.approx(1e3 / found.model.p50.value)
    assert found.load_seconds is not None
    assert found.load_seconds > 0
    assert found.runs_with["runtime"] == "onnxruntime"
    assert found.runs_with["threads"] == 1
    assert (found.peak_memory is None) == (sys.platform == "win32")
    assert found.device_memory is None


def test_a_ratio_comes_from_one_session(together):
    found = ratio(together["wide"], together["small"])
    assert found is not None
    assert found.low <= found.value <= found.high


def test_failures_are_told_and_do_not_end_the_session(together):
    assert together["broken"].status == "failed"
    assert "cannot read" in (together["broken"].reason or "")
    assert together["mismatch"].status == "failed"
    assert "holds onnx-fp32" in (together["mismatch"].reason or "")
    assert not together["broken"].timed


def test_places_that_are_not_here_are_not_measured(together):
    assert together["gpu"].status == "not measured"
    assert "CUDA" in (together["gpu"].reason or "")
    assert together["crowd"].status == "not measured"
    assert "4096 threads were asked for" in (together["crowd"].reason or "")


def test_a_fixed_length_has_no_end_to_end(small):
    found = time_jobs([Job("a", small, None, HERE, batch=2, length=7)], [], QUICK)["a"]
    assert found.end_to_end is None
    assert found.model is not None
    assert found.rows_per_second == pytest.approx(2e3 / found.model.p50.value)


def test_a_bare_file_is_timed_too(small):
    assert time_jobs([Job("a", small / "model.onnx", None, HERE, length=5)], [], QUICK)["a"].timed


def test_jobs_that_cannot_be_told_apart_or_fed(small):
    with pytest.raises(UsageError, match="two jobs are called a"):
        time_jobs([Job("a", small, None, HERE)] * 2, TEXTS, QUICK)
    with pytest.raises(UsageError, match="need texts"):
        time_jobs([Job("a", small, None, HERE)], [], QUICK)


def spec(folder) -> WorkerSpec:
    return WorkerSpec(
        folder=str(folder),
        variant=None,
        device="cpu",
        threads=1,
        cores=None,
        batch=1,
        length=4,
        calls=(),
        warm=(0,),
        seed=0,
    )


def test_a_killed_worker_is_lost_with_its_signal(small):
    with Link(threads=1) as link:
        link.ask(spec(small), 60)
        link._process.send_signal(signal.SIGKILL)
        with pytest.raises(Lost, match="SIGKILL, as happens when memory runs out"):
            link.ask(Order(do="turn", calls=(0,), seconds=0.01), 60)


def test_a_silent_worker_is_given_up(small):
    with Link(threads=1) as link:
        link.ask(spec(small), 60)
        link._process.send_signal(signal.SIGSTOP)
        with pytest.raises(Lost, match="no answer within 0 s"):
            link.ask(Order(do="turn", calls=(0,), seconds=0.01), 0.2)
    assert link._process.returncode == -signal.SIGKILL


def test_a_crash_is_told_by_its_last_line(small):
    with Link(threads=1) as link:
        link.ask(spec(small), 60)
        with pytest.raises(Lost, match=r"exit code 1: .*ValidationError"):
            link.ask(WorkerSpec(**spec(small).model_dump()), 60)


def test_last_words_name_the_exception():
    told = "loading\nTraceback (most recent call last):\n  File a\nValueError: two\nlines\n"
    assert last_words(told) == "ValueError: two"
    assert last_words("Segmentation fault\n\n") == "Segmentation fault"
    assert last_words("") == ""


def test_no_worker_is_left_behind(small):
    link = Link(threads=1)
    with pytest.raises(KeyboardInterrupt):
        _interrupted(link, small)
    assert link._process.poll() is not None


def _interrupted(link: Link, small) -> None:
    with link:
        link.ask(spec(small), 60)
        raise KeyboardInterrupt


def test_workers_leave_a_launch_and_fix_their_threads(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    found = worker_environment(threads=2)
    assert "RANK" not in found
    assert {found[name] for name in link_module.THREAD_VARIABLES} == {"2"}


def test_an_exported_model_is_timed_without_torch(small):
    blocked = "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'datasets', 'sklearn']))"
    told = "\n".join([spec(small).model_dump_json(), Order(do="close").model_dump_json(), ""])
    found = subprocess.run(
        [sys.executable, "-c", f"{blocked}; from compress.measure.worker import main; main()"],
        input=told,
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    ready, last = (Reply.model_validate_json(line) for line in found.stdout.splitlines())
    assert ready.failed is None
    assert last.peak_memory is not None


def test_what_a_library_prints_does_not_spoil_the_replies(small):
    noisy = "import sys, os; from compress.measure import worker; opened = worker.open_model\n"
    noisy += "def loud(spec):\n    print('noise'); os.write(1, b'more'); return opened(spec)\n"
    noisy += "worker.open_model = loud; worker.main()"
    told = "\n".join([spec(small).model_dump_json(), Order(do="close").model_dump_json(), ""])
    found = subprocess.run([sys.executable, "-c", noisy], input=told, capture_output=True, check=True, encoding="utf-8")
    assert len(found.stdout.splitlines()) == 2
    assert "noise" in found.stderr
