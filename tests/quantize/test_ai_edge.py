"""INT8 LiteRT files made of real exports of tiny models."""

import shutil
import sys
from importlib.util import find_spec

import pytest

import compress.quantize.quantize_export as quantize_export
from compress.errors import MissingExtra, ModelError
from compress.model_folder.model_info import read_info
from compress.runtime.text_model import TextModel
from tests.edge_exports import largest_difference
from tests.variant_builder import build

pytestmark = pytest.mark.skipif(find_spec("litert_torch") is None, reason="litert-torch is not installed")
NAME = "litert-int8"


@pytest.fixture(scope="module")
def source(tiny_folder, tmp_path_factory):
    work = tmp_path_factory.mktemp("fp32")
    build("litert-fp32", tiny_folder("bert"), work)
    return work


@pytest.fixture(scope="module")
def quantized(source, tmp_path_factory):
    work = tmp_path_factory.mktemp("int8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantize_export, "SUSPICIOUS", 0.0)  # random weights have narrow decisions
        build(NAME, source, work)
    return work


def test_it_predicts_like_its_source(quantized, source):
    info = read_info(quantized)
    assert (info.variant.name, info.variant.method, info.variant.precision) == (NAME, "ai-edge", "int8")
    assert 0 < largest_difference(quantized, source) < 0.5
    assert len(TextModel.open(quantized).predict(["a good film", "bad"])) == 2


def test_a_row_does_not_depend_on_its_batch(quantized):
    assert read_info(quantized).variant.parity["alone_or_in_batch"] == 0


def test_a_corrupt_export_is_reported(source, tmp_path):
    shutil.copytree(source, tmp_path / "source")
    (tmp_path / "source" / "model.tflite").write_bytes(b"not a model" * 100)
    (tmp_path / "work").mkdir()
    with pytest.raises(ModelError, match="LiteRT cannot read"):
        build(NAME, tmp_path / "source", tmp_path / "work")
    assert not list((tmp_path / "work").iterdir())


def test_without_the_library_the_extra_is_named(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_quantizer.quantizer", None)
    with pytest.raises(MissingExtra, match="ai_edge_quantizer is needed") as raised:
        build(NAME, source, tmp_path)
    assert "compress-encoders[litert]" in raised.value.hint
