"""What the report takes from the steps, and what it leaves out."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from compress.console import Console
from compress.measure import Latency
from compress.measure.resources.serving_memory import ServingMemory
from compress.model_folder.model_history import VocabularyInfo
from compress.model_folder.model_info import FolderInfo
from compress.pipeline.graph import Plan
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import StepRecord
from compress.pipeline.steps import measure_step
from compress.pipeline.steps.build_report import ReportBuilder, errors_of_winners
from compress.pipeline.steps.select_step import failure_of, join_ledgers, targets_of
from compress.pipeline.strip_paths import strip_paths
from compress.prune.latency_table import SpeedupResult
from compress.recipe.measure_schema import Target
from compress.select.ledger import Ledger, TargetResult, read_ledger
from tests.prune.test_latency_table import table as latency_table
from tests.report.conftest import TASK, apply_gates, made_report

PLACE = "/home/somebody/runs/.steps/model.onnx"


@pytest.fixture
def plan(recipe_file: Path, tmp_path: Path) -> Plan:
    result = prepare(recipe_file, ("targets=[cpu, cuda]",), Options(runs=tmp_path))
    result.missing_targets.clear()  # as on a machine that has one
    return result


def assembly(plan: Plan, folder: Path, **failures: str) -> ReportBuilder:
    inputs = {entry.step: folder for entry in plan.variants}
    return ReportBuilder(plan, StepContext(inputs, folder, Console("quiet"), failures=failures))


def test_reasons_for_variants_without_timing(plan, tmp_path):
    context = assembly(plan, tmp_path, measure="it broke").context
    rows = {each.key: each for each in plan.variants}
    cpu, cuda = plan.recipe.targets

    def latency(target: Target) -> Latency:
        return join_ledgers(context, plan, "measure").result("student/onnx-int8", target.title).latency

    assert [target.title for target in targets_of(plan, rows["student/onnx-int8"].variant)] == ["cpu", "cuda"]
    assert latency(cuda) == Latency(
        status="not measured", reason="ONNX Runtime has no kernels for dynamic INT8 on CUDA"
    )
    assert latency(cpu).reason == "it broke"
    assert targets_of(plan, rows["student/torch-graph-bf16"].variant) == [cuda]
    plan.missing_targets["cuda"] = "this machine has no CUDA device"
    assert latency(cuda).reason == "this machine has no CUDA device"


def test_vocabulary_is_shown_with_the_first_model_that_has_it(recipe_file, tmp_path):
    plan = prepare(recipe_file, ("student.vocabulary=seen", "prune.vocabulary=seen"), Options(runs=tmp_path))
    own, fewer = (VocabularyInfo(rule="seen", pieces_before=9, pieces=count, changed={}) for count in (8, 7))
    kept = {"student": own, "pruned": own, "trimmed": fewer}
    infos = {model: FolderInfo(step="recover", vocabulary=info) for model, info in kept.items()}
    report = assembly(plan, tmp_path)
    assert report._first({"teacher": FolderInfo(step="finetune"), **infos}, "vocabulary") == {
        "student": own,
        "trimmed": fewer,
    }


def test_a_pruned_model_has_what_its_cut_measured(recipe_file, tmp_path):
    plan = prepare(recipe_file, ("prune={to: {speedup: 2}, target: cpu}",), Options(runs=tmp_path))
    attempts = ({"heads": (2, 1), "ffn": (16, 16), "predicted": 2.1, "measured": 2.0},)
    reached = SpeedupResult(goal=2.0, table=latency_table(), attempts=attempts, chosen=0)
    record = StepRecord.model_construct(step="cut", measured=reached.model_dump(mode="json"))
    context = StepContext({}, tmp_path, Console("quiet"), records={"cut": record})
    report = ReportBuilder(plan, context)
    assert report._speedup("pruned") == {"speedup": reached, "target": "cpu"}
    assert report._speedup("student") == {}


def test_timings_and_failures_contain_no_local_paths(plan, tmp_path, monkeypatch):
    runs_with = {"options": {"cache": PLACE, "threads": 1}, "providers": ["x"]}
    timed = TargetResult(
        key="student/onnx-fp32",
        target="cpu",
        latency=Latency(status="failed", reason=f"cannot read {PLACE}", runs_with=runs_with),
        serving=(ServingMemory(batch=1, reason=f"no {PLACE}"),),
    )
    monkeypatch.setattr(measure_step.Measurement, "run", lambda self: Ledger(results=(timed,)))
    monkeypatch.setattr(measure_step, "sample_texts", lambda rows, kind: [])
    roles = SimpleNamespace(info=SimpleNamespace(task_info=TASK), rows=lambda role: [])
    monkeypatch.setattr(measure_step, "load_prepared", lambda folder: roles)
    context = StepContext({"data": tmp_path}, tmp_path, Console("quiet"), failures={"floor": f"NotFound: {PLACE!r}"})
    measure_step.measure(context, plan, limits=False)
    assert "somebody" not in (tmp_path / "ledger.json").read_text()
    (result,) = read_ledger(tmp_path).results
    assert result.latency.reason == "cannot read model.onnx"
    assert result.latency.runs_with["options"] == {"cache": "model.onnx", "threads": 1}
    assert failure_of(context, "floor") == "NotFound: 'model.onnx'"
    assert failure_of(context, "data") is None


def test_errors_are_those_of_the_row_shown_in_detail_and_equal_answers_are_shown_once():
    answers = np.array([[0.4, 0.6], [0.1, 0.9]])
    stored = {"teacher/torch-fp32": answers[::-1], "pruned/onnx-int8": answers}
    titles = ("cpu", "cpu-t2", "cuda")
    prepared = {"rows": lambda role: [{"text": "a"}, {"text": "b"}], "test_numbers": lambda: np.array([7, 9])}
    scorer = SimpleNamespace(
        roles=SimpleNamespace(info=SimpleNamespace(task_info=TASK), **prepared),
        gold={"test": np.array([0, 1])},
        step_of=lambda key, title: None if title == "cuda" else f"score-{key}",
        answers=lambda key, title: stored.get(key),
    )
    report = apply_gates(made_report())
    report = report.model_copy(
        update={
            "targets": tuple(report.targets[0].model_copy(update={"title": title}) for title in titles),
            "verdicts": tuple(report.verdicts[0].model_copy(update={"target": title}) for title in titles),
        }
    )
    (only,) = errors_of_winners(report, scorer)
    assert (only.model, only.targets) == ("pruned/onnx-int8", ("cpu", "cpu-t2"))
    assert [(row.row, row.number, row.texts, row.teacher) for row in only.rows] == [(0, 8, ("a",), "good (90 %)")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no file /home/somebody/x/model.onnx here", "no file model.onnx here"),
        ("a=/home/ann/a.npy b=/home/ann/b.npy", "a=a.npy b=b.npy"),
        (r"C:\Users\somebody\model.onnx", "model.onnx"),
        ("12 rows/s, fp32/int8 and 3 / 4", "12 rows/s, fp32/int8 and 3 / 4"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
        ("'/opt/venv/lib/x.so'", "'x.so'"),
        ("//server/share/ann/x.csv", "x.csv"),
        ("file:///home/ann/x.csv and s3://bucket/a/b", "x.csv and s3://bucket/a/b"),
    ],
)
def test_paths_are_cut_to_their_last_part(text, expected):
    assert strip_paths(text) == expected


def test_a_users_name_with_a_space_is_not_left(monkeypatch):
    monkeypatch.setenv("HOME", "/home/Jane Doe")
    assert strip_paths("no /home/Jane Doe/data/train.csv here") == "no train.csv here"
    assert "Jane" not in strip_paths("no /home/Jane Doe/My Data/train.csv here")
    assert strip_paths(f"no {Path.cwd()}/secret/data/train.csv") == "no train.csv"
