from pathlib import Path

from compress.pipeline.forecast.time_forecast import forecast
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_store import StepRecord


def record(kind: str, seconds: float, work: float | None, machine: str = "here", **settings: object) -> StepRecord:
    return StepRecord(
        step=kind,
        kind=kind,
        fingerprint="f",
        settings=settings,
        inputs={},
        digest="d",
        seconds=seconds,
        work=work,
        machine=machine,
        versions={},
        peak_memory=1,
        created="2026-01-01T00:00:00+00:00",
    )


def test_trainings_are_forecast_by_rows(tmp_path: Path, recipe_file: Path) -> None:
    plan = prepare(recipe_file, ["finetune.epochs=4"], Options(runs=tmp_path))
    made = forecast(plan.step("finetune"), plan, [record("finetune", 10.0, 100.0)], "here", train_rows=50)
    assert made.seconds == 4 * 50 * 10.0 / 100.0


def test_the_closest_settings_are_the_guide(tmp_path: Path, recipe_file: Path) -> None:
    plan = prepare(recipe_file, [], Options(runs=tmp_path))
    step = plan.step("export-student-onnx-fp32")
    records = [record("export", 99.0, None, variant="other"), record("export", 5.0, None, variant="onnx-fp32")]
    assert forecast(step, plan, records, "here", None).seconds == 5.0


def test_another_machine_or_kind_tells_nothing(tmp_path: Path, recipe_file: Path) -> None:
    plan = prepare(recipe_file, [], Options(runs=tmp_path))
    records = [record("finetune", 10.0, 100.0, machine="there"), record("prune", 10.0, 100.0)]
    made = forecast(plan.step("finetune"), plan, records, "here", train_rows=50)
    assert (made.seconds, made.basis) == (None, "no earlier run here")


def test_unknown_rows_are_said_to_be_unknown(tmp_path: Path, recipe_file: Path) -> None:
    plan = prepare(recipe_file, [], Options(runs=tmp_path))
    made = forecast(plan.step("finetune"), plan, [record("finetune", 10.0, 100.0)], "here", train_rows=None)
    assert made.seconds is None
