"""The screening of quantized files, and the admission of those that it keeps."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from compress.console import Console
from compress.errors import CompressError, ScreenedOut
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import RECORD_FILE
from compress.pipeline.steps import screen_step
from compress.select.quantization_loss import Fallback, QuantizationLoss
from compress.select.screening import SCREENING_FILE, Screening, read_screening

FILES = {"onnx-int8": "one", "onnx-int8-minmax": "two", "onnx-int8-entropy": "three"}
MILLISECONDS = {"one": 1.0, "two": 1.5, "three": 0.5}


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StepContext:
    """The folders of three judged files, of which no model is opened."""
    for name in ("data", "screen", *FILES.values()):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.onnx").write_bytes(b"model")
        (tmp_path / name / RECORD_FILE).write_text("{}", encoding="utf-8")
    monkeypatch.setattr("compress.data.splits.prepare_splits.load_prepared", lambda folder: None)
    monkeypatch.setattr(screen_step, "sample_train", lambda *given: None)
    monkeypatch.setattr(screen_step, "in_batches", lambda *given: None)
    monkeypatch.setattr(screen_step, "footprint", lambda folder: SimpleNamespace(bytes_total=100))
    timing = "compress.export.short_timing"
    monkeypatch.setattr(f"{timing}.median_row", lambda batches: None)
    monkeypatch.setattr(f"{timing}.time_folders", lambda folders, *_: [MILLISECONDS[each.name] for each in folders])
    loss = QuantizationLoss(outcome="passed", score=0.9, drop=0.0, error=0.002, allowed=0.005)
    record = SimpleNamespace(measured=Fallback(loss=loss).model_dump(mode="json"))
    inputs = {name: tmp_path / name for name in ("data", *FILES.values())}
    return StepContext(inputs, tmp_path / "screen", Console("quiet"), records=dict.fromkeys(inputs, record))


def screened(context: StepContext) -> Screening:
    screen_step.screen_files(context, FILES, 1, 0)
    return read_screening(context.work)


def test_files_are_compared_with_the_first_methods(context):
    result = screened(context)
    assert [each.variant for each in result.files] == list(FILES)
    assert list(result.reasons) == ["onnx-int8-minmax"]


def test_a_method_that_failed_is_not_compared(context):
    del context.inputs["one"]
    result = screened(context)
    assert [each.variant for each in result.files] == ["onnx-int8-minmax", "onnx-int8-entropy"]
    assert result.reasons == {}


def test_without_any_file_there_is_nothing_to_compare(context):
    nothing = replace(context, inputs={"data": context.inputs["data"]})
    with pytest.raises(CompressError, match="no quantized file to compare"):
        screen_step.screen_files(nothing, FILES, 1, 0)


def test_files_that_were_kept_are_passed_on(context, tmp_path):
    screened(context)
    inputs = {**context.inputs, "screen": context.work}
    for name in ("kept", "dropped"):
        (tmp_path / name).mkdir()
    kept = StepContext(inputs, tmp_path / "kept", Console("quiet"))
    screen_step.admit(kept, "three", "screen", "onnx-int8-entropy")
    assert [path.name for path in kept.work.iterdir()] == ["model.onnx"]
    dropped = StepContext(inputs, tmp_path / "dropped", Console("quiet"))
    with pytest.raises(ScreenedOut, match=r"screened out: in a short timing it takes 1\.50 times as long as onnx-int8"):
        screen_step.admit(dropped, "two", "screen", "onnx-int8-minmax")
    assert not list(dropped.work.iterdir())


def test_a_screening_of_a_later_version_is_refused(tmp_path):
    (tmp_path / SCREENING_FILE).write_text('{"schema_version": 2}', encoding="utf-8")
    with pytest.raises(ValueError, match="newer"):
        read_screening(tmp_path)
