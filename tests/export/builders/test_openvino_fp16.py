"""OpenVINO files with weights of 16 bits."""

import pytest

from compress.errors import ModelError
from compress.export.builders import openvino
from compress.export.comparison.parity_check import LIMITS, ParityLimit
from compress.model_folder.model_info import read_info
from compress.runtime import open_predictor
from tests.variant_builder import build

pytest.importorskip("openvino", reason="openvino is not installed")


@pytest.fixture(scope="module")
def exported(tiny_folder, tmp_path_factory):
    """The fp32 ONNX export of a tiny BERT."""
    work = tmp_path_factory.mktemp("onnx")
    build("onnx-fp32", tiny_folder("bert"), work)
    return work


def test_weights_have_16_bits_and_products_are_fp32(exported, tmp_path):
    sizes = {}
    for name in ("openvino-fp32", "openvino-fp16"):
        (tmp_path / name).mkdir()
        build(name, exported, tmp_path / name)
        sizes[name] = (tmp_path / name / "openvino_model.bin").stat().st_size
    assert sizes["openvino-fp16"] < 0.55 * sizes["openvino-fp32"]
    folder = tmp_path / "openvino-fp16"
    variant = read_info(folder).variant
    assert (variant.name, variant.precision) == ("openvino-fp16", "fp16")
    assert 0 < variant.parity["max_abs_difference"] < 0.01
    assert open_predictor(folder).describe()["options"]["INFERENCE_PRECISION_HINT"] == "f32"


def test_outputs_that_differ_by_more_are_refused(exported, tmp_path, monkeypatch):
    limits = {**LIMITS, "fp16": ParityLimit(difference=1e-9, agreement=1.0)}
    monkeypatch.setattr(openvino, "LIMITS", limits)
    with pytest.raises(ModelError, match="the outputs of openvino-fp16 differ"):
        build("openvino-fp16", exported, tmp_path)
