"""Layers of a quantized file return to fp32: on a model of which INT8 breaks exactly one layer."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from compress.console import Console
from compress.data.splits.prepare_splits import prepare_splits
from compress.errors import CompressError, ScreenedOut
from compress.model_folder.model_info import read_info
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps import quantized_steps, scoring_steps
from compress.pipeline.steps.quantized_steps import FallbackSettings, fallback
from compress.recipe.task_schema import Task
from compress.runtime.text_model import TextModel
from compress.select.ledger import Rules
from compress.select.quantized_files import SCREENING_FILE, Fallback, QuantizationLoss, Screening, read_screening
from compress.storage.file_digests import digests
from compress.storage.file_names import RECORD_FILE
from compress.variants import VARIANTS
from tests.conftest import WORDS
from tests.variant_builder import build

BROKEN = "bert.encoder.layer.0.intermediate.dense"
DYNAMIC = VARIANTS["onnx-int8"]


@pytest.fixture(scope="module")
def inputs(tiny_model, tiny_folder, tmp_path_factory) -> dict[str, Path]:
    """The folders of all steps before; the labels are the unquantized model's own decisions."""
    root = tmp_path_factory.mktemp("steps")
    model = break_in_int8(tiny_model("bert", intermediate_size=256))
    random = np.random.default_rng(0)
    texts = list(dict.fromkeys(" ".join(random.choice(WORDS[4:], random.integers(3, 12))) for _ in range(400)))
    labels = TextModel.open(tiny_folder(model)).predict(texts)
    rows = "text,label\n" + "".join(f"{text},{each['label']}\n" for text, each in zip(texts, labels, strict=True))
    (root / "rows.csv").write_text(rows, encoding="utf-8")
    data = {"train": str(root / "rows.csv"), "select": str(root / "rows.csv"), "test": str(root / "rows.csv")}
    for name in ("data", "export", "score", "quantize"):
        (root / name).mkdir()
    task = prepare_splits(Task(kind="classification", data=data, max_length=32), 0, root / "data").task_info
    folders = {name: root / name for name in ("data", "export", "score", "quantize")}
    build("onnx-fp32", tiny_folder(model, task), root / "export")
    build("onnx-int8", root / "export", root / "quantize")
    (root / "quantize" / RECORD_FILE).write_text("{}", encoding="utf-8")
    context = StepContext(folders, root / "score", Console("quiet"))
    scoring_steps.score(context, "export", VARIANTS["onnx-fp32"], "cpu", 32)
    return folders


def break_in_int8(model):
    """Give every column of one layer a weight that fp32 never uses, and beside which 8 bits store the others as 0."""
    layer = model.bert.encoder.layer[0]
    with torch.no_grad():
        norm = layer.attention.output.LayerNorm
        norm.weight[5] = norm.bias[5] = 0.0
        layer.intermediate.dense.weight[:, 5] = 1e4
    return model


def settings(max_drop: float = 0.05) -> FallbackSettings:
    rules = Rules(max_drop=1.0, quantize_max_drop=max_drop)
    return FallbackSettings(rules, "cpu", batch=1, batches=(1,), threads=1, bootstrap=100, seed=0)


def run(inputs, work: Path, variant=DYNAMIC, **changes) -> Fallback:
    context = StepContext(inputs, work, Console("quiet"))
    return Fallback.model_validate(fallback(context, "quantize", "export", "score", variant, settings(**changes)))


def test_the_broken_layer_alone_returns_to_fp32(inputs, tmp_path):
    result = run(inputs, tmp_path)
    assert result.loss.outcome == "missed"
    assert result.fp32_layers == (BROKEN,)
    assert result.final.outcome != "missed"
    assert result.tried == 1
    assert result.slowdown is not None
    assert result.slowdown > 0
    assert read_info(tmp_path).variant.fp32_layers == (BROKEN,)
    assert set(digests(tmp_path)) == set(digests(inputs["export"]))


def test_a_file_that_loses_what_is_allowed_is_passed_on(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(quantized_steps, "LayerFallback", None)
    result = run(inputs, tmp_path, max_drop=1.0)
    assert (result.loss.outcome, result.fp32_layers, result.tried) == ("passed", (), 0)
    original = digests(inputs["quantize"])
    del original[RECORD_FILE]
    assert digests(tmp_path) == original


def test_the_original_file_stays_where_no_layers_help(inputs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quantized_steps.LayerFallback, "_attempt", lambda self, products: None)
    result = run(inputs, tmp_path)
    assert result.fp32_layers == ()
    assert result.tried == 5
    assert result.reason == "it also misses with 5 layers in fp32"
    assert "no layer returns to fp32" in capsys.readouterr().err
    assert read_info(tmp_path).variant.fp32_layers == ()
    assert (tmp_path / "model.onnx").read_bytes() == (inputs["quantize"] / "model.onnx").read_bytes()


def test_methods_that_quantize_everything_or_nothing_are_only_judged(inputs, tmp_path):
    result = run(inputs, tmp_path, DYNAMIC.model_copy(update={"leaves_fp32": False}))
    assert result.loss.outcome == "missed"
    assert result.reason == "dynamic decides itself what is quantized"


def test_what_a_killed_attempt_left_does_not_enter_the_result(inputs, tmp_path):
    left = tmp_path / quantized_steps.ATTEMPT_FOLDER
    left.mkdir()
    (left / "model.onnx").write_bytes(b"half")
    run(inputs, tmp_path, max_drop=1.0)
    assert not left.exists()


FILES = {"onnx-int8": "one", "onnx-int8-minmax": "two", "onnx-int8-entropy": "three"}
MILLISECONDS = {"one": 1.0, "two": 1.5, "three": 0.5}


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StepContext:
    """The folders of three judged files, of which no model is opened."""
    for name in ("data", "screen", *FILES.values()):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.onnx").write_bytes(b"model")
        (tmp_path / name / RECORD_FILE).write_text("{}", encoding="utf-8")
    monkeypatch.setattr(quantized_steps, "load_prepared", lambda folder: None)
    monkeypatch.setattr(quantized_steps, "sample_train", lambda *given: None)
    monkeypatch.setattr(quantized_steps, "in_batches", lambda *given: None)
    monkeypatch.setattr(quantized_steps, "footprint", lambda folder: SimpleNamespace(bytes_total=100))
    timing = "compress.export.tune_ort_session"
    monkeypatch.setattr(f"{timing}.median_row", lambda batches: None)
    monkeypatch.setattr(f"{timing}.time_folders", lambda folders, *_: [MILLISECONDS[each.name] for each in folders])
    loss = QuantizationLoss(outcome="passed", score=0.9, drop=0.0, error=0.002, allowed=0.005)
    record = SimpleNamespace(measured=Fallback(loss=loss).model_dump(mode="json"))
    inputs = {name: tmp_path / name for name in ("data", *FILES.values())}
    return StepContext(inputs, tmp_path / "screen", Console("quiet"), records=dict.fromkeys(inputs, record))


def screened(context: StepContext) -> Screening:
    quantized_steps.screen_files(context, FILES, 1, 0)
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
        quantized_steps.screen_files(nothing, FILES, 1, 0)


def test_files_that_were_kept_are_passed_on(context, tmp_path):
    screened(context)
    inputs = {**context.inputs, "screen": context.work}
    for name in ("kept", "dropped"):
        (tmp_path / name).mkdir()
    kept = StepContext(inputs, tmp_path / "kept", Console("quiet"))
    quantized_steps.admit(kept, "three", "screen", "onnx-int8-entropy")
    assert [path.name for path in kept.work.iterdir()] == ["model.onnx"]
    dropped = StepContext(inputs, tmp_path / "dropped", Console("quiet"))
    with pytest.raises(ScreenedOut, match=r"screened out: in a short timing it takes 1\.50 times as long as onnx-int8"):
        quantized_steps.admit(dropped, "two", "screen", "onnx-int8-minmax")
    assert not list(dropped.work.iterdir())


def test_a_screening_of_a_later_version_is_refused(tmp_path):
    (tmp_path / SCREENING_FILE).write_text('{"schema_version": 2}', encoding="utf-8")
    with pytest.raises(ValueError, match="newer"):
        read_screening(tmp_path)
