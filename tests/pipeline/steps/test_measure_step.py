"""The measuring step: what it requests, what it writes, and when it is rerun; nothing is timed here."""

import csv
import json
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from compress.console import Console
from compress.environment import Gpu
from compress.errors import DeviceUnavailable, ModelError, UsageError
from compress.measure import Latency
from compress.measure.resources.serving_memory import ServingMemory
from compress.measure.roofline.roofline import MachineLimits, find_limits
from compress.measure.timing.round_statistics import timing
from compress.measure.timing.worker_process import WorkerLost, WorkerProcess
from compress.pipeline import plan
from compress.pipeline.graph import Plan
from compress.pipeline.plan import timing_settings
from compress.pipeline.preflight.preflight import check
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_store import StepStore
from compress.pipeline.steps import measure_step
from compress.pipeline.steps.measure_step import Measurement, TimedModel
from compress.recipe.measure_schema import Measure, Target, TimingGrid
from compress.report.report_schema import ROWS_PAGE, Report, read_report
from compress.runtime import RUNTIMES
from compress.select.ledger import Ledger, TargetResult, read_ledger, write_ledger

CPU, BATCHED = Target(device="cpu"), Target(device="cpu", batch=8, length=32)
RESULTS = {"select", "package", "report", "publish"}
LIMITS = MachineLimits(device="cpu", device_name="c", threads=1, measured_at="now", fingerprint="f")


def timed(key: str, *titles: str) -> TimedModel:
    return TimedModel(key, Path(key), None, frozenset(titles))


def measure_all(*measured, **options) -> Ledger:
    return Measurement(*measured, **options).run()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list]:
    """Stand-ins for everything that takes time; what they were asked."""
    seen: dict[str, list] = {"jobs": [], "served": [], "budgets": []}

    def time_jobs(jobs, texts, settings, *, seed, console, budget):
        seen["jobs"].append((list(jobs), settings))
        seen["budgets"].append(budget)
        return {job.key: Latency(status="failed", reason=job.key) for job in jobs}

    def serving_memory(folder, variant, device, batches, length, *, threads, running):
        seen["served"].append((folder.name, device, length, threads))
        return tuple(ServingMemory(batch=batch, length=length) for batch in batches)

    monkeypatch.setattr(measure_step, "time_jobs", time_jobs)
    monkeypatch.setattr(measure_step, "serving_memory", serving_memory)
    monkeypatch.setattr(measure_step, "machine_limits", lambda threads, device, console: LIMITS)
    monkeypatch.setattr(measure_step, "snapshot_machine", lambda device: None)
    return seen


def test_shared_timing_is_measured_once(calls) -> None:
    named = Target(device="cpu", name="phone")
    settings = Measure(grid=TimingGrid(batch=(1, 8), length=(32, "data")), callers=(1, 2))
    rows = [timed("a", "cpu", "phone", "cpu-b8-l32"), timed("b", "cpu")]
    result = measure_all(rows, [CPU, named, BATCHED], ["x"], settings, longest=64)
    (own, first), (more, second) = calls["jobs"]
    assert [(job.folder.name, job.batch, job.length) for job in own] == [("a", 1, None), ("a", 8, 32), ("b", 1, None)]
    assert (first.callers, second.callers) == ((1, 2), ())
    # `b` competes at none of the places of `a`'s third target, but its own target's grid asks for all cells.
    assert sorted((job.key.rpartition(" ")[2], job.batch, str(job.length)) for job in more) == [
        ("a", 1, "32"),
        ("a", 8, "None"),
        ("b", 1, "32"),
        ("b", 8, "32"),
        ("b", 8, "None"),
    ]
    assert [(each.target, each.key) for each in result.results] == [
        ("cpu", "a"),
        ("cpu", "b"),
        ("phone", "a"),
        ("cpu-b8-l32", "a"),
    ]
    assert result.result("a", "phone").latency == result.result("a", "cpu").latency
    assert [(cell.batch, cell.length) for cell in result.grid["cpu"]] == [(1, 32), (8, 32), (1, "data"), (8, "data")]
    assert result.grid["cpu"][1].latencies["a"] == result.result("a", "cpu-b8-l32").latency
    assert calls["served"] == [("a", "cpu", 64, 1), ("b", "cpu", 64, 1)]
    assert result.result("b", "cpu").serving[1].batch == 32
    assert find_limits(result.limits, "cpu", 1) is result.limits[0]
    assert find_limits(result.limits, "cpu", 2) is find_limits(result.limits, "cuda", 1) is None


def test_memory_is_measured_of_the_reference_and_then_of_the_fastest(calls, monkeypatch) -> None:
    milliseconds = {"reference": 9.0, "slow": 5.0, "fast": 1.0, "middle": 2.0}

    def time_jobs(jobs, texts, settings, *, seed, console, budget):
        times = {job.key: milliseconds[job.key.rpartition(" ")[2]] for job in jobs}
        return {key: Latency(status="measured", model=timing([np.full(5, time)])) for key, time in times.items()}

    monkeypatch.setattr(measure_step, "time_jobs", time_jobs)
    monkeypatch.setattr(measure_step, "PARALLEL_PROCESSES", 1)
    measure_all([timed(name, "cpu") for name in milliseconds], [CPU], ["x"], Measure(), longest=64)
    assert [name for name, *_ in calls["served"]] == ["reference", "fast", "middle", "slow"]


def test_the_reference_and_the_smallest_models_are_timed_first(calls, tmp_path) -> None:
    models = []
    for name, size in {"reference": 9, "large": 8, "small": 1, "middle": 2}.items():
        (tmp_path / name / "onnx").mkdir(parents=True)
        (tmp_path / name / "onnx" / "model.onnx").write_bytes(b"x" * size)
        models.append(TimedModel(name, tmp_path / name, None, frozenset(["cpu"])))
    result = measure_all(models, [CPU], ["x"], Measure(), longest=64)
    assert [job.folder.name for job in calls["jobs"][0][0]] == ["reference", "small", "middle", "large"]
    assert [each.key for each in result.results] == ["reference", "large", "small", "middle"]


def test_memory_is_not_measured_unless_requested(calls) -> None:
    (result,) = measure_all([timed("a", "cpu")], [CPU], ["x"], Measure(memory=()), longest=64).results
    assert result.serving == ()


def test_ctrl_c_ends_the_processes_that_measure_memory(calls, monkeypatch, tmp_path) -> None:
    """They take no notice of it themselves, and would be waited for."""
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(120)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    begun = []

    def serving_memory(folder, variant, device, batches, length, *, threads, running):
        if folder.name == "a":
            wait_for(lambda: begun)
            raise KeyboardInterrupt
        begun.append(folder)
        with suppress(WorkerLost), WorkerProcess("sleeps", ServingMemory, threads) as process:
            running.add(process)
            process.receive(100)
        ended.append(folder)
        return ()

    ended: list[Path] = []
    monkeypatch.setattr(measure_step, "serving_memory", serving_memory)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        measure_all([timed("a", "cpu"), timed("b", "cpu")], [CPU], ["x"], Measure(), longest=64)
    assert ended == [Path("b")]
    assert time.monotonic() - begin < 60


def wait_for(what) -> None:
    while not what():
        time.sleep(0.01)


def test_smoke_run_measures_no_machine_limits(calls) -> None:
    assert measure_all([timed("a", "cpu")], [CPU], ["x"], Measure(), longest=64, limits=False).limits == ()


def test_failed_machine_limits_do_not_fail_the_step(calls, monkeypatch, capsys) -> None:
    def refuse(threads, device, console):
        raise ModelError("no kernels")

    monkeypatch.setattr(measure_step, "machine_limits", refuse)
    result = measure_all([timed("a", "cpu")], [CPU], ["x"], Measure(), longest=64, console=Console("human"))
    assert (result.limits, [each.key for each in result.results]) == ((), ["a"])
    assert "the limits of cpu with 1 thread were not measured: no kernels" in capsys.readouterr().err


def test_ledgers_are_joined_by_key(tmp_path: Path) -> None:
    latency = Latency(status="measured", model=timing([np.array([1.0, 1.1])] * 3, 100))
    memory = (ServingMemory(batch=1),)
    timings = Ledger(results=(TargetResult(key="a", target="cpu", latency=latency, serving=memory),), limits=(LIMITS,))
    write_ledger(tmp_path, timings)
    assert read_ledger(tmp_path) == timings
    assert json.loads((tmp_path / "ledger.json").read_bytes())["schema_version"] == 1
    untimed = Latency(status="not measured", reason="it was not timed")
    rows = [TargetResult(key=key, target="cpu", latency=untimed) for key in ("a", "b")]
    sizes = Ledger(results=(TargetResult(key="a", target="cpu", bytes_total=9), TargetResult(key="c", target="cpu")))
    joined = Ledger.joined(rows, [read_ledger(tmp_path), sizes])
    assert joined.limits == (LIMITS,)
    assert [(each.key, each.latency, each.serving, each.bytes_total) for each in joined.results] == [
        ("a", latency, memory, 9),
        ("b", untimed, (), None),
    ]


def test_budget_is_divided_between_targets_and_grid(calls) -> None:
    rows, grid = [timed("a", "cpu")], TimingGrid(batch=(1, 8), length=(32,))
    measure_all(rows, [CPU], ["x"], Measure(budget=300, grid=grid), longest=64)
    measure_all(rows, [CPU], ["x"], Measure(budget=300, memory=()), longest=64)
    measure_all(rows, [CPU], ["x"], Measure(grid=grid), longest=64)
    measure_all(rows, [CPU], ["x"], Measure(rounds=5, grid=grid), longest=64)
    assert [budget and round(budget) for budget in calls["budgets"]] == [60, 180, 300, None, 30, None, None]


def test_memory_is_not_measured_once_the_budget_is_used_up(calls, monkeypatch) -> None:
    clock = iter([0.0, 0.0, 0.0, 100.0, 100.0, 100.0])
    monkeypatch.setattr(measure_step.time, "monotonic", lambda: next(clock))
    result = measure_all([timed("a", "cpu")], [CPU], ["x"], Measure(budget=60), longest=64)
    assert "measure.budget" in result.results[0].serving[0].reason
    assert (result.limits, calls["served"]) == ((), [])


def test_timing_settings_leave_out_settings_without_effect() -> None:
    assert timing_settings(Measure(robustness=("typos",))) == timing_settings(Measure())
    assert timing_settings(Measure(budget=20, rounds=4, processes=2)) == timing_settings(Measure(budget=20))
    assert timing_settings(Measure(processes=2)) != timing_settings(Measure())
    assert timing_settings(Measure(rounds=4)) != timing_settings(Measure())
    assert timing_settings(Measure(callers=(2,))) != timing_settings(Measure())


def test_every_runtime_names_the_libraries_of_a_measurement() -> None:
    assert all(runtime.libraries for runtime in RUNTIMES.values())


def planned(recipe_file: Path, tmp_path: Path, *overrides: str) -> Plan:
    return prepare(recipe_file, overrides, Options(runs=tmp_path))


def changed(one: Plan, other: Plan) -> set[str]:
    marks = {step.name: step.fingerprint for step in one.steps}
    return {step.kind for step in other.steps if marks.get(step.name) != step.fingerprint}


def test_robustness_adds_perturb_steps_and_reruns_no_scoring(recipe_file: Path, tmp_path: Path) -> None:
    overrides = ((), ("measure.robustness=[typos]",), ("measure.robustness=[typos, uppercase]",))
    plain, robust, more = (planned(recipe_file, tmp_path, *each) for each in overrides)
    assert changed(plain, robust) == changed(robust, more) == {"perturb", "quality", *RESULTS}
    assert all(step.optional for step in robust.steps if step.kind == "perturb")


def test_the_seed_is_part_of_a_measurement(recipe_file: Path, tmp_path: Path) -> None:
    plan = planned(recipe_file, tmp_path, "seed=7")
    assert plan.step("measure").settings["seed"] == 7
    assert plan.step("measure").run.keywords["plan"].recipe.seed == 7


def test_drivers_and_cuda_are_part_of_a_measurement_there(recipe_file: Path, tmp_path: Path, monkeypatch) -> None:
    def accelerators() -> dict:
        return planned(recipe_file, tmp_path, "targets=[cpu, cuda]").step("measure").settings["accelerators"]

    assert planned(recipe_file, tmp_path).step("measure").settings["accelerators"] == {}
    monkeypatch.setattr(plan, "cuda_devices", lambda: (Gpu("H200", 2**37),))
    monkeypatch.setattr(plan, "driver_version", lambda: "570.1")
    monkeypatch.setattr(plan, "cuda_version", lambda: "12.8")
    assert accelerators() == {"names": ["H200"], "driver": "570.1", "cuda": "12.8"}


def test_smoke_recipe_measures_everything_once(recipe_file: Path, tmp_path: Path) -> None:
    settings = {
        "grid": {"batch": [8, 1], "length": [32, "data"]},
        "callers": [2, 4],
        "memory": [1, 8],
        "robustness": ["typos", "lowercase"],
    }
    overrides = [f"measure.{key}={json.dumps(value)}" for key, value in settings.items()]
    plan = prepare(recipe_file, overrides, Options(runs=tmp_path, smoke=True))
    measure = plan.recipe.measure
    assert (measure.grid, measure.callers, measure.robustness) == (
        TimingGrid(batch=(8,), length=(32,)),
        (2,),
        ("typos",),
    )
    assert len(measure.memory) == 1
    assert plan.step("measure").run.keywords["limits"] is False


def test_changed_timing_settings_rerun_no_scoring(recipe_file: Path, tmp_path: Path) -> None:
    plain, more = (planned(recipe_file, tmp_path, *each) for each in ((), ("measure.callers=[1, 2]",)))
    assert changed(plain, more) == {"measure", *RESULTS}


def test_slices_retrain_no_model(recipe_file: Path, tmp_path: Path) -> None:
    plain, sliced = (planned(recipe_file, tmp_path, *each) for each in ((), ("task.slices=[label]",)))
    assert changed(plain, sliced) == {"slices", "quality", *RESULTS}


def test_openvino_is_built_from_onnx_and_its_absence_is_reported(recipe_file, tmp_path, monkeypatch) -> None:
    plan = planned(recipe_file, tmp_path, "export=[openvino]", "quantize=null")
    assert plan.step("export-student-openvino-fp32").needs == ("data", "export-student-onnx-fp32")
    result = measured_libraries(monkeypatch, missing="openvino")
    with pytest.raises(UsageError, match=r"not installed: openvino; pip install 'compress-encoders\[openvino\]'"):
        check(plan, StepStore(tmp_path), set()).refuse()
    assert "openvino" in result


def measured_libraries(monkeypatch: pytest.MonkeyPatch, missing: str) -> list[str]:
    from compress.pipeline.preflight import preflight

    calls: list[str] = []
    real = preflight.importlib.util.find_spec

    def find_spec(name: str, *more: object) -> object:
        calls.append(name)
        return None if name == missing else real(name, *more)

    monkeypatch.setattr(preflight.importlib.util, "find_spec", find_spec)
    return calls


def test_requested_variant_is_measured(recipe_file: Path, tmp_path: Path) -> None:
    plan = planned(recipe_file, tmp_path, "variants=[torch-bf16]")
    assert {made.key for made in plan.variants} >= {"teacher/torch-bf16", "pruned/torch-bf16"}


class TestOnAFinishedRun:
    @pytest.fixture
    def report(self, finished_run: Path) -> Report:
        return read_report(finished_run)

    def test_report_describes_the_machine(self, report: Report) -> None:
        assert report.surroundings is not None
        assert report.surroundings.cores == report.machine.cores
        assert [limits.threads for limits in report.limits] == [1]

    def test_every_row_has_memory_footprint_and_limit_shares(self, report: Report) -> None:
        for row in report.rows:
            result = report.result(row.key, "cpu")
            assert result.bytes_total == row.bytes_total
            assert [each.batch for each in result.serving] == [1]
            assert all(each.peak or each.reason for each in result.serving)
            assert row.footprint is not None
            assert list(row.footprint.flops_at) == [32]  # the task reads no more of a text
            assert result.shares is not None
            assert result.latency.first_answer_seconds is not None
            assert result.latency.energy

    def test_wrong_rows_are_written_next_to_the_report_and_published_nowhere(
        self, finished_run: Path, report: Report
    ) -> None:
        page = (finished_run / ROWS_PAGE).read_text(encoding="utf-8")
        key = report.detailed("cpu")
        test = report.result(key, "cpu").test
        wrong = round((1 - test.scores["accuracy"].value) * test.rows)
        assert page.partition("Largest disagreements")[0].count('data-label="row"') == wrong
        assert f"{wrong} of {test.rows} rows are wrong" in page
        counts = test.confusion.counts
        assert sum(map(sum, counts)) - sum(counts[each][each] for each in range(len(counts))) == wrong
        own = (finished_run / "report.html").read_text(encoding="utf-8")
        assert f'href="{ROWS_PAGE}"' in own
        assert "compress predict runs/tiny/winner/cpu" in own
        zoo = finished_run.parent / "zoo"
        published = [path for path in zoo.rglob("*") if path.is_file()]
        assert [path for path in published if path.name == "report.html"]
        assert not [path for path in published if path.name == ROWS_PAGE]
        for path in published:
            if path.suffix in (".html", ".md", ".json") and path.name != "tokenizer.json":
                text = path.read_text(encoding="utf-8")
                assert not any(word in text for word in (f'href="{ROWS_PAGE}"', "predict runs/", 'open("runs/'))
        with (finished_run.parent / "test.csv").open(encoding="utf-8", newline="") as rows:
            texts = [row["text"] for row in csv.DictReader(rows)]
        written = (finished_run / "report.json").read_text(encoding="utf-8")
        assert len(texts) == 60
        assert not any(text in written for text in texts)

    def test_unavailable_device_skips_the_step_without_failing(self, finished_run, tmp_path, monkeypatch) -> None:
        from compress.pipeline import run
        from compress.pipeline.execute import Executor

        def lacks(*args: object, **kwargs: object) -> None:
            raise DeviceUnavailable("no such device")

        runs = finished_run.parent / "runs"
        plan = prepare(finished_run.parent / "tiny.yaml", (), Options(runs=runs))
        step = plan.step("score-pruned-onnx-int8-cpu-b1")
        object.__setattr__(step, "run", lacks)
        executor = Executor(plan, StepStore(runs), Console("quiet"), tmp_path / "events.jsonl", run.Launch())
        outcome = executor.run({step.name}, until=step.name)
        assert outcome.status[step.name] == "skipped"
        assert run.Result(tmp_path, outcome, None).raise_for_failures() is None
