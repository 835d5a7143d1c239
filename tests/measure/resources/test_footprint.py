import pytest

from compress.errors import ModelError
from compress.measure.resources.footprint import Footprint, flops, footprint, needed_files
from compress.model_folder.model_info import TaskInfo, read_info, write_info
from compress.runtime import RUN_MODES
from compress.storage.file_names import ANSWERS_FILE, RECORD_FILE


def test_variant_counts_the_files_that_predicting_needs(small, tmp_path):
    result = footprint(small)
    assert result.bytes_weights == (small / "model.onnx").stat().st_size
    assert result.bytes_total == sum(path.stat().st_size for path in small.iterdir())
    assert (result.parameters, result.embedding_parameters) == (120, 104)


def test_descriptions_are_not_counted(small, tmp_path):
    before = footprint(small).bytes_total
    copy = tmp_path / "published"
    (copy / "report").mkdir(parents=True)
    for path in small.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "README.md").write_text("about")
    (copy / "digests.json").write_text("{}")
    (copy / "report" / "report.json").write_text("{}")
    assert footprint(copy).bytes_total == before


def test_a_bare_file_with_its_data_beside_it(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"12345")
    (tmp_path / "a.onnx.data").write_bytes(b"123")
    (tmp_path / "b.onnx").write_bytes(b"1")
    result = footprint(tmp_path / "a.onnx")
    assert (result.bytes_total, result.bytes_weights, result.parameters) == (8, 8, None)


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_nothing_to_measure(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="has no weights"):
        footprint(tmp_path / name)


def test_parameters_without_embeddings_and_operations(small, tmp_path):
    result = footprint(small)
    assert result.encoder_parameters == 16
    assert result.flops_at == {}  # this folder does not tell the size of its heads
    info = read_info(small)
    complete = info.model_copy(update={"task": None, "shape": info.shape.model_copy(update={"head_size": 8})})
    (tmp_path / "model.onnx").write_bytes(b"1")
    write_info(tmp_path, complete)
    assert footprint(tmp_path).flops_at == {128: flops(complete.shape, 128)}
    task = TaskInfo(
        name="a", kind="classification", text=("text",), labels=("0", "1"), metric="accuracy", max_length=64
    )
    write_info(tmp_path, complete.model_copy(update={"task": task}))
    assert list(footprint(tmp_path).flops_at) == [64]
    assert Footprint.model_validate_json(footprint(tmp_path).model_dump_json()) == footprint(tmp_path)


def test_bare_file_has_unknown_parameters(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"1")
    result = footprint(tmp_path / "a.onnx")
    assert (result.encoder_parameters, result.flops_at) == (None, {})


def test_an_openvino_file_has_its_weights_beside_it(tmp_path):
    (tmp_path / "a.xml").write_bytes(b"<net></net>")
    (tmp_path / "a.bin").write_bytes(b"12345")
    result = footprint(tmp_path / "a.xml")
    assert (result.bytes_total, result.bytes_weights) == (16, 5)


FOREIGN = (
    "config.json",
    "tokenizer.json",
    "model.safetensors",
    "pytorch_model.bin",
    "tf_model.h5",
    "training_args.bin",
    "checkpoint-500/model.safetensors",
    "checkpoint-500/optimizer.pt",
    "onnx/model.onnx",
    "onnx/model.onnx_data",
    "onnx/model_quantized.onnx",
    "openvino/openvino_model.xml",
    "openvino/openvino_model.bin",
)


@pytest.fixture
def foreign(tmp_path):
    """A folder as it comes from elsewhere: one model in four forms, and what its training left."""
    for name in FOREIGN:
        (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / name).write_bytes(b"1")
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("way", "weights"),
    [
        (None, ["onnx/model.onnx", "onnx/model.onnx_data"]),
        ("onnxruntime", ["onnx/model.onnx", "onnx/model.onnx_data"]),
        ("torch-fp32", ["model.safetensors"]),
        ("openvino", ["openvino/openvino_model.xml", "openvino/openvino_model.bin"]),
    ],
)
def test_foreign_folder_counts_only_files_that_run(foreign, way, weights):
    result = needed_files(foreign, RUN_MODES[way] if way else None)
    assert [path.relative_to(foreign).as_posix() for path in result] == ["config.json", "tokenizer.json", *weights]
    assert footprint(foreign, RUN_MODES[way] if way else None).bytes_total == 2 + len(weights)


def test_what_a_step_records_beside_its_model_is_not_its_size(tmp_path, tiny_model, tiny_folder):
    folder = tiny_folder(tiny_model("bert"))
    before = footprint(folder).bytes_total
    for name in (ANSWERS_FILE, RECORD_FILE):
        (folder / name).write_bytes(b"1234")
    assert footprint(folder).bytes_total == before


def test_weights_in_parts_count_together(tmp_path):
    for name in ("config.json", "model.safetensors.index.json", *(f"model-0000{n}-of-00002.safetensors" for n in "12")):
        (tmp_path / name).write_bytes(b"123")
    assert footprint(tmp_path).bytes_weights == 6
