"""Two small ONNX classifiers with tokenizer and compress.json, made without torch."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.model_folder.model_info import FolderInfo, ShapeInfo, TaskInfo, VariantInfo, write_info
from tests.conftest import word_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *["good", "bad", "film", "plot", "is", "the", "a", "very", "not"]]
TASK = TaskInfo(
    name="films", kind="classification", text=("text",), labels=("bad", "good"), metric="accuracy", max_length=32
)
ONNX_FP32 = VariantInfo(name="onnx-fp32", format="onnx", precision="fp32", runtime="onnxruntime")


def bag_model(width: int) -> onnx.ModelProto:
    """Word vectors, averaged over real pieces, into two logits."""
    random = np.random.default_rng(0)
    weights = {
        "vectors": random.normal(size=(len(WORDS), width)).astype(np.float32),
        "head": random.normal(size=(width, 2)).astype(np.float32),
        "axis": np.array([1], dtype=np.int64),
        "last": np.array([-1], dtype=np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["vectors", "input_ids"], ["embedded"]),
        helper.make_node("Cast", ["attention_mask"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["real", "last"], ["mask"]),
        helper.make_node("Mul", ["embedded", "mask"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "axis"], ["summed"], keepdims=0),
        helper.make_node("MatMul", ["summed", "head"], ["logits"]),
    ]
    names = ["input_ids", "attention_mask"]
    graph = helper.make_graph(
        nodes,
        "bag",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def write_variant(folder: Path, width: int) -> Path:
    """An exported variant, as the export step leaves it."""
    folder.mkdir(parents=True)
    onnx.save(bag_model(width), folder / "model.onnx")
    (folder / "config.json").write_text(f'{{"model_type": "bert", "pad_token_id": 0, "vocab_size": {len(WORDS)}}}')
    word_tokenizer(WORDS).save(str(folder / "tokenizer.json"))
    shape = ShapeInfo(
        family="bert",
        hidden=width,
        heads=(1,),
        ffn=(width,),
        vocabulary=len(WORDS),
        parameters=(len(WORDS) + 2) * width,
        embedding_parameters=len(WORDS) * width,
    )
    write_info(folder, FolderInfo(step="export", made_by="tests", task=TASK, shape=shape, variant=ONNX_FP32))
    return folder


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Path:
    return write_variant(tmp_path_factory.mktemp("variants") / "small", 8)


@pytest.fixture(scope="session")
def wide(tmp_path_factory) -> Path:
    return write_variant(tmp_path_factory.mktemp("variants") / "wide", 512)
