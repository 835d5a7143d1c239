"""A made-up run: six variants of three models on two targets, with the shape of a real one."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from compress.folder import TaskInfo, VariantInfo
from compress.measure.facts import Score
from compress.measure.footprint import Footprint
from compress.measure.latency import Latency, timing
from compress.measure.quality import ClassScore, Difference, Quality
from compress.report.result import AtTarget, DataFacts, LedgerRow, Machine, Report, Rules, StepCost, TargetFacts

TASK = TaskInfo(
    name="films", kind="classification", text=("text",), labels=("bad", "good"), metric="accuracy", max_length=128
)
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
        lost = value - other
        return Difference(
            value=lost, low=lost - 0.006, high=lost + 0.006, p_value=0.03 if lost else 1.0, test="mcnemar"
        )

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
    found = Latency(
        status="measured",
        model=timing(rounds, 100),
        end_to_end=timing([one + 0.12 for one in rounds], 100),
        rows_per_second=1e3 / milliseconds,
        load_seconds=0.2,
        peak_memory=180_000_000,
        runs_with={"runtime": "onnxruntime", "version": "1.31.1"},
    )
    return found.model_copy(update=changes)


@cache
def row(key: str, seed: int) -> LedgerRow:
    model, _, variant = key.partition("/")
    milliseconds, megabytes, score, seconds = FIGURES[key]
    plain = FIGURES[f"{model}/onnx-fp32"][2] if variant == "onnx-int8" else None
    place = AtTarget(
        select=quality(score - 0.002, 0.913, "select", None if plain is None else plain - 0.002),
        test=quality(score, unquantized=plain),
        latency=latency(milliseconds, seed),
    )
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
        targets={"cpu": place},
    )


MakeReport = Callable[..., Report]


def made_report(**changes: object) -> Report:
    """A report that is not judged yet; keyword arguments replace fields."""
    report = Report(
        name="films",
        created="2026-11-20T12:00:00Z",
        versions={"compress-encoders": "0.1.0", "onnxruntime": "1.31.1", "torch": "2.13.0"},
        machine=Machine(
            name="A Processor <8>",
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
        rows=tuple(row(key, seed) for seed, key in enumerate(FIGURES)),
        teacher="teacher/torch-fp32",
        unquantized={f"{model}/onnx-int8": f"{model}/onnx-fp32" for model in STEPS},
        floor=quality(0.806),
    )
    return report.model_copy(update=changes)


@pytest.fixture
def make_report() -> MakeReport:
    return made_report


@pytest.fixture
def quality_of() -> Callable[..., Quality]:
    return quality


@pytest.fixture
def latency_of() -> Callable[..., Latency]:
    return latency
