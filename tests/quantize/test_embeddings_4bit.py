"""Word vectors of 4 bits."""

import numpy as np
import onnx
import pytest

from compress.model_folder.model_info import read_info
from compress.quantize import embeddings_4bit
from compress.quantize.embeddings_4bit import BLOCK, four_bits, packed
from compress.runtime.text_model import TextModel
from tests.variant_builder import build


@pytest.mark.parametrize("width", [BLOCK, BLOCK + 8, 5])
def test_vectors_differ_by_half_a_step_at_most(width):
    vectors = np.random.default_rng(0).standard_normal((6, width)).astype(np.float32)
    vectors[0] = 0.0
    integers, scales = four_bits(vectors)
    assert (integers.min(), integers.max()) == (-8, 7)
    steps = np.repeat(scales.astype(np.float32), BLOCK, axis=1)[:, :width]
    assert (np.abs(integers * steps - vectors) <= 0.51 * steps).all()


def test_two_integers_share_a_byte_the_first_in_its_lower_half():
    assert packed(np.array([[-8, -7, 0, 7]], np.int8)).tolist() == [[0x10, 0xF8]]


@pytest.mark.slow
def test_the_largest_table_has_four_bits(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings_4bit, "LEAST_ROWS", 65)  # the vocabulary has 64 pieces like the positions
    (tmp_path / "fp32").mkdir()
    build("onnx-fp32", tiny_folder("bert"), tmp_path / "fp32")
    for name in ("none", "words"):
        (tmp_path / name).mkdir()
        build("onnx-int8-embeddings-4bit", tmp_path / "fp32", tmp_path / name)
        monkeypatch.setattr(embeddings_4bit, "LEAST_ROWS", 64)
    graphs = {name: onnx.load(tmp_path / name / "model.onnx").graph for name in ("none", "words")}
    tables = {
        name: [node.input[0] for node in graph.node if node.op_type == "GatherBlockQuantized"]
        for name, graph in graphs.items()
    }
    assert tables["none"] == []
    assert "com.microsoft.GatherBlockQuantized" in read_info(tmp_path / "words").variant.operators
    assert "bert.embeddings.word_embeddings.weight" in tables["words"]
    assert len(TextModel.open(tmp_path / "words").predict(["a good film", "bad"])) == 2
