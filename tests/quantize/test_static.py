"""Static INT8 of real exports of tiny models."""

import numpy as np
import onnx
import pytest

from compress.errors import UsageError
from compress.quantize.integer_products import integer_products, product_names
from compress.quantize.static import RANGES, quantize_int8_static_model
from compress.runtime import open_predictor
from compress.runtime.text_model import TextModel
from tests.quantize.sample_rows import sample_batches
from tests.variant_builder import build


@pytest.mark.parametrize("method", RANGES)
def test_it_predicts_like_its_source(exported, tmp_path, method, capfd):
    name = f"onnx-int8-{method.removeprefix('static-')}"
    info = build(name, exported, tmp_path, calibration=sample_batches)
    assert (info.variant.name, info.variant.method, info.variant.portable) == (name, method, True)
    assert 0 < info.variant.parity["max_abs_difference"] < 1
    assert len(TextModel.open(tmp_path).predict(["a good film", "bad"])) == 2
    assert "".join(capfd.readouterr()) == ""


def test_a_row_does_not_depend_on_its_batch(exported, tmp_path):
    build("onnx-int8-minmax", exported, tmp_path, calibration=sample_batches)
    predictor, batch = open_predictor(tmp_path), sample_batches(4)[0]
    alone = predictor.predict({name: array[:1] for name, array in batch.items()})["logits"]
    np.testing.assert_allclose(predictor.predict(batch)["logits"][:1], alone, atol=1e-5)


def test_padding_does_not_count(exported):
    proto = onnx.load(exported / "model.onnx")
    padded = [{name: np.pad(array, ((0, 0), (0, 9))) for name, array in batch.items()} for batch in sample_batches()]
    graphs = [quantize_int8_static_model(proto, batches).SerializeToString() for batches in (sample_batches(), padded)]
    assert graphs[0] == graphs[1]


def test_any_layers_can_stay_in_fp32(exported):
    proto = onnx.load(exported / "model.onnx")
    names = product_names(proto)
    heads = [name for name, layer in names.items() if layer in ("bert.pooler.dense", "classifier")]
    for fp32 in (heads, list(names)):
        quantized = quantize_int8_static_model(proto, sample_batches(), fp32)
        assert len(list(integer_products(quantized))) == len(names) - len(fp32)


def test_one_row_is_too_few(exported, tmp_path):
    with pytest.raises(UsageError, match="static-minmax takes its ranges from sample rows; got 1, expected"):
        build("onnx-int8-minmax", exported, tmp_path, calibration=lambda: [sample_batches(1)[0]])
    assert not list(tmp_path.iterdir())
