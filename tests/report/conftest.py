"""A synthetic run: three variants of three models on two targets, as large as a real one."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from compress.measure.machine_snapshot import Machine, MachineSnapshot
from compress.measure.quality.quality_result import (
    Bin,
    Calibration,
    ClassScore,
    Confusion,
    Difference,
    Disagreement,
    Perturbed,
    Quality,
    SliceScore,
)
from compress.measure.resources.footprint import Footprint
from compress.measure.resources.serving_memory import ServingMemory
from compress.measure.result_base import Score
from compress.measure.roofline.roofline import KernelRate, LimitShares, MachineLimits
from compress.measure.timing.latency import Latency, Noise, UnderLoad
from compress.measure.timing.round_statistics import timing
from compress.model_folder.model_info import TaskInfo, VariantInfo
from compress.report.report_schema import LedgerRow, Report, ReportModel
from compress.report.run_facts import DataFacts, StepCost, TargetFacts
from compress.report.winner_summary import compare_winners
from compress.select.ledger import GridCell, Rules, TargetResult
from compress.select.winner import select_winner

SURROUNDINGS = MachineSnapshot(
    looked_at="2026-11-20T12:00:00Z",
    fingerprint="f",
    system="Linux 6.1",
    python="3.11.9",
    cpu="A Processor <8>",
    machine="x86_64",
    instructions=("avx2", "avx512_vnni"),
    cores=2,
    cores_of_machine=64,
    threads_per_core=2,
    core_quota=2.0,
    memory=8_000_000_000,
    memory_of_machine=64_000_000_000,
    governor="powersave",
    frequency=(800.0, 3500.0),
    turbo=True,
    load=0.71,
    hypervisor="kvm",
)
LIMITS = MachineLimits(
    device="cpu",
    device_name="A Processor <8>",
    threads=1,
    fp32=KernelRate(value=1.4e11, kernel="onnxruntime MatMul", size="1024 x 1024 x 1024"),
    int8=KernelRate(value=5.1e11, kernel="onnxruntime MatMulInteger", size="1024 x 1024 x 1024"),
    bandwidth=1.1e10,
    bandwidth_kernel="numpy copy",
    missing={"bf16": "torch is not installed"},
    measured_at="2026-11-20T12:00:00Z",
    fingerprint="f",
)
TASK = TaskInfo(
    name="films", kind="classification", text=("text",), labels=("bad", "good"), metric="accuracy", max_length=128
)
WINNER = "pruned/onnx-int8"
STEPS = {"teacher": "finetune", "student": "distill", "pruned": "prune"}
VARIANTS = {
    "torch-fp32": VariantInfo(name="torch-fp32", format="torch", precision="fp32", runtime="torch"),
    "onnx-fp32": VariantInfo(name="onnx-fp32", format="onnx", precision="fp32", runtime="onnxruntime"),
    "onnx-int8": VariantInfo(
        name="onnx-int8", format="onnx", precision="int8", method="dynamic", runtime="onnxruntime"
    ),
}
FIGURES = {  # p50 in ms, megabytes, score, seconds
    "teacher/torch-fp32": (11.6, 91.3, 0.915, 240.0),
    "teacher/onnx-fp32": (5.1, 91.1, 0.915, 252.0),
    "teacher/onnx-int8": (2.4, 23.4, 0.911, 258.0),
    "student/torch-fp32": (6.2, 70.0, 0.912, 420.0),
    "student/onnx-fp32": (2.7, 69.8, 0.912, 431.0),
    "student/onnx-int8": (1.3, 17.9, 0.908, 436.0),
    "pruned/torch-fp32": (3.9, 55.0, 0.907, 600.0),
    "pruned/onnx-fp32": (1.4, 54.8, 0.907, 610.0),
    "pruned/onnx-int8": (0.61, 13.9, 0.906, 615.0),
}


def quality(value: float, teacher: float = 0.915, role: str = "test", unquantized: float | None = None) -> Quality:
    def against(other: float | None) -> Difference | None:
        if other is None:
            return None
        lost, half = value - other, 0.001 if role == "select" else 0.006  # select can tell what the gate allows
        return Difference(value=lost, low=lost - half, high=lost + half, p_value=0.03 if lost else 1.0, test="mcnemar")

    score = Score(value=value, low=value - 0.018, high=value + 0.018)
    return Quality(
        role=role,
        rows=872,
        metric="accuracy",
        larger_is_better=True,
        primary=score,
        scores={"accuracy": score},
        per_class={
            "bad": ClassScore(rows=428, recall=value - 0.01),
            "good": ClassScore(rows=444, recall=value + 0.01),
        },
        versus_teacher=against(teacher),
        versus_unquantized=against(unquantized),
        agreement_with_teacher=0.97,
        truncated=0.0,
    )


def latency(milliseconds: float, seed: int = 0, **changes: object) -> Latency:
    random = np.random.default_rng(seed)
    drift = 1 + 0.02 * np.random.default_rng(99).random(10)
    rounds = [milliseconds * slow * random.uniform(0.97, 1.03, 30) for slow in drift]
    latency_result = Latency(
        status="measured",
        model=timing(rounds, 100),
        end_to_end=timing([one + 0.12 for one in rounds], 100),
        rows_per_second=1e3 / milliseconds,
        load_seconds=0.2,
        peak_memory=180_000_000,
        runs_with={"runtime": "onnxruntime", "version": "1.31.1"},
    )
    return latency_result.model_copy(update=changes)


@cache
def row(key: str) -> LedgerRow:
    model, _, variant = key.partition("/")
    _, megabytes, _, seconds = FIGURES[key]
    size = int(megabytes * 1e6)
    return LedgerRow(
        model=model,
        step=STEPS[model],
        variant=VARIANTS[variant],
        shape="3x384, 4-12 heads, FFN 384-1536",
        footprint=Footprint(
            parameters=22_700_000, embedding_parameters=11_900_000, bytes_total=size, bytes_weights=size - 800_000
        ),
        cost_seconds=seconds,
    )


@cache
def result(key: str, seed: int) -> TargetResult:
    model, _, variant = key.partition("/")
    milliseconds, megabytes, score, _ = FIGURES[key]
    plain = FIGURES[f"{model}/onnx-fp32"][2] if variant == "onnx-int8" else None
    return TargetResult(
        key=key,
        target="cpu",
        select=quality(score - 0.002, 0.913, "select", None if plain is None else plain - 0.002),
        test=quality(score, unquantized=plain),
        latency=latency(milliseconds, seed),
        bytes_total=int(megabytes * 1e6),
        quantized=variant == "onnx-int8",
        reference=key == "teacher/torch-fp32",
    )


def edited(report: Report, key: str, **changes: object) -> Report:
    """The report with columns of one row's results replaced, on every target."""
    results = (each.model_copy(update=changes) if each.key == key else each for each in report.results)
    return report.model_copy(update={"results": tuple(results)})


MakeReport = Callable[..., Report]


def made_report(**changes: object) -> Report:
    """A report before selection; keyword arguments replace fields."""
    report = Report(
        name="films",
        created="2026-11-20T12:00:00Z",
        versions={"compress-encoders": "0.1.0", "onnxruntime": "1.31.1", "torch": "2.13.0"},
        machine=Machine(
            cpu="A Processor <8>",
            system="Linux 6.1",
            cores=2,
            instructions=("avx2", "avx512_vnni"),
            memory=8_000_000_000,
        ),
        recipe={"name": "films", "task": {"name": "films"}},
        task=TASK,
        data=DataFacts(source="films", digest="0" * 64, rows={"train": 6000, "select": 300, "test": 872}),
        rules=Rules(max_drop=0.01, quantize_max_drop=0.005),
        targets=(
            TargetFacts(title="cpu", device="cpu", threads=1, batch=1, length="data"),
            TargetFacts(
                title="cuda", device="cuda", threads=1, batch=1, length="data", present=False, reason="no CUDA here"
            ),
        ),
        steps=(
            StepCost(name="finetune", fingerprint="a", seconds=240.0, reused=True),
            StepCost(name="distill", fingerprint="b", seconds=180.0),
            StepCost(name="prune", fingerprint="c", seconds=175.0),
        ),
        models=tuple(
            ReportModel(name=name, parent=parent, section=section)
            for (name, section), parent in zip(STEPS.items(), (None, *STEPS), strict=False)
        ),
        rows=tuple(map(row, FIGURES)),
        results=tuple(result(key, seed) for seed, key in enumerate(FIGURES)),
        teacher="teacher/torch-fp32",
        unquantized={f"{model}/onnx-int8": f"{model}/onnx-fp32" for model in STEPS},
        floor=quality(0.806),
    )
    return report.model_copy(update=changes)


def apply_gates(report: Report) -> Report:
    """The report with winners selected from its own rows, as the select step does."""
    gated, verdicts = [], []
    for target in report.targets:
        candidates = [each for each in report.results if each.target == target.title]
        verdict, gates = select_winner(target.title, candidates, report.rules, target.reason)
        gated += [each.model_copy(update={"gate": gates.get(each.key)}) for each in candidates]
        verdicts.append(verdict)
    results = [
        next(each for each in gated if (each.key, each.target) == (old.key, old.target)) for old in report.results
    ]
    return compare_winners(report.model_copy(update={"results": tuple(results), "verdicts": tuple(verdicts)}))


def full_report() -> Report:
    """A report with winners and with every kind of measurement."""
    report = made_report()
    rows = tuple(full_row(row) for row in report.rows)
    results = tuple(full_result(report, each) for each in report.results)
    by_key = {each.key: each.latency.model.p50.value for each in results}
    grid = tuple(
        GridCell(
            batch=batch,
            length=length,
            latencies={
                key: latency(value * batch**0.8 * length / 64, seed) for seed, (key, value) in enumerate(by_key.items())
            },
        )
        for length in (32, 128)
        for batch in (1, 8, 32)
    )
    return apply_gates(
        report.model_copy(
            update={
                "rows": rows,
                "results": results,
                "grid": {"cpu": grid},
                "surroundings": SURROUNDINGS,
                "limits": (LIMITS,),
            }
        )
    )


def full_row(row: LedgerRow) -> LedgerRow:
    assert row.footprint is not None
    footprint = row.footprint.model_copy(update={"flops_at": {128: 2_410_000_000}})
    return row.model_copy(update={"footprint": footprint})


def full_result(report: Report, result: TargetResult) -> TargetResult:
    fast = result.latency.model.p50.value
    timed = result.latency.model_copy(
        update={
            "status": "unstable" if result.key == "student/onnx-int8" else "measured",
            "reason": "other work took 31 % of the cores" if result.key == "student/onnx-int8" else None,
            "first_answer_seconds": 1.4,
            "resident_memory": 150_000_000,
            "energy": "not measured: this system shows no energy counters",
            "noise": Noise(other_load=0.02, beside=0.4, stolen=0.001, preempted=3.0, throttled=0),
            "precision": 0.013,
            "seconds": 4.2,
            "under_load": tuple(
                UnderLoad(callers=n, rows_per_second=900 * n**0.3 / fast, p50=fast * n, p95=fast * n * 1.3, calls=400)
                for n in (1, 2, 4)
            ),
        }
    )
    return result.model_copy(
        update={
            "test": full_quality(result.test, result.key),
            "latency": timed,
            "shares": LimitShares(
                compute=0.31,
                bandwidth=1.2,
                kernel="onnxruntime MatMul",
                operations_per_second=4.4e10,
                bytes_per_second=1.3e10,
            ),
            "serving": (
                ServingMemory(batch=1, resident=140_000_000, peak=160_000_000),
                ServingMemory(batch=32, reason="a batch of 32 does not fit in memory")
                if report.row(result.key).variant.format == "torch"
                else ServingMemory(batch=32, resident=240_000_000, peak=290_000_000),
            ),
        }
    )


def full_quality(test: Quality, key: str) -> Quality:
    change = test.versus_teacher or Difference(value=0.0, low=-0.01, high=0.01, p_value=1.0, test="mcnemar")
    parts = tuple(
        SliceScore(name=f"{low}-{low + 8} pieces", rows=218, primary=test.primary, versus_teacher=test.versus_teacher)
        for low in (3, 12, 21)
    )
    few = SliceScore(name="radio <fm>", rows=4, reason="fewer than 20 rows")
    bins = tuple(
        Bin(confidence=0.55 + 0.03 * index, correct=0.5 + 0.031 * index + (0.02 if index % 2 else -0.03), rows=58)
        for index in range(15)
    )
    return test.model_copy(
        update={
            "per_class": {
                label: entry.model_copy(update={"precision": 0.9, "f1": 0.9}) for label, entry in test.per_class.items()
            },
            "calibration": Calibration(
                error=Score(value=0.061, low=0.05, high=0.07)
                if "int8" in key
                else Score(value=0.03, low=0.02, high=0.04),
                by_chance=0.035,
                bins=bins,
                over_confident=True,
            ),
            "by_length": parts,
            "slices": {"source": (*parts[:1], few)},
            "robustness": tuple(
                Perturbed(name=name, primary=test.primary, change=change) for name in ("typos", "case", "truncation")
            ),
            "confusion": Confusion(
                unit="rows", names=("bad", "good"), counts=((390, 38), (43 if key == WINNER else 40, 401))
            ),
            "disagreements": tuple(
                Disagreement(
                    row=17 * index, distance=1.4 - index / 20, ours="good 98.1 %", teachers="bad 97 %", gold="bad"
                )
                for index in range(20)
            )
            if key != "teacher/torch-fp32"
            else (),
        }
    )


@pytest.fixture
def make_full_report() -> Callable[[], Report]:
    return full_report


@pytest.fixture
def make_report() -> MakeReport:
    return made_report


@pytest.fixture
def quality_of() -> Callable[..., Quality]:
    return quality


@pytest.fixture
def latency_of() -> Callable[..., Latency]:
    return latency
