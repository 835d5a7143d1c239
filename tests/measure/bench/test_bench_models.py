import shutil

import pytest

from compress.errors import UsageError
from compress.measure.bench.parse_options import chosen_base, resolve_models


def one(word):
    (entry,) = resolve_models([str(word)])
    return entry


def test_folders_and_files(small):
    assert one(small).path == small
    assert one(small / "model.onnx").path == small / "model.onnx"
    assert one(small).variant is None
    assert one(small).size.bytes_weights > 0


def test_variant_follows_the_last_colon(small):
    entry = one(f"{small / 'model.onnx'}:openvino")
    assert (entry.path, entry.variant.runtime) == (small / "model.onnx", "openvino")
    assert entry.name == f"{small / 'model.onnx'}:openvino"


def test_path_may_contain_colons(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small, "C:models")
    assert one("C:models").path is not None
    assert one("C:models:openvino").variant.name == "openvino"
    shutil.copytree(small, "a:openvino")
    assert one("a:openvino").variant is None
    assert "C:\\none.onnx" in one("C:\\none.onnx").reason


def test_unknown_variant_is_refused_before_timing(small):
    with pytest.raises(UsageError, match="cannot run as 'openvno'; did you mean openvino"):
        resolve_models([f"{small}:openvno"])


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("none.onnx", "there is no file or folder none.onnx"),
        ("none.xml", "there is no file or folder none.xml"),
        ("./none", "no file, folder or card is called './none'"),
        ("models/nonne", "there is no file or folder models/nonne"),
        ("minilm-l7", "did you mean minilm-l6"),
        ("notes.txt", "notes.txt is not a model: no runtime reads"),
        ("models", "models is a folder without a model"),
        ("models/none", "models/none is a folder without a model"),
        ("nowhere", "no file, folder or card is called 'nowhere'"),
    ],
)
def test_missing_models_have_a_reason(tmp_path, monkeypatch, word, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "none").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("no model")
    entry = one(word)
    assert entry.path is None
    assert reason in entry.reason
    assert (entry.size, entry.task, entry.max_length) == (None, None, None)


def test_a_hub_id_is_fetched(small, monkeypatch):
    fetch = pytest.importorskip("compress.models.fetch")
    calls = []
    monkeypatch.setattr(fetch, "fetch", lambda name: calls.append(name) or small)
    entry = one("owner/name@v1:torch-bf16")
    assert (calls, entry.path, entry.variant.name) == (["owner/name@v1"], small, "torch-bf16")


@pytest.mark.parametrize("words", [[], [""], [":openvino"]])
def test_no_model_is_bad_usage(words):
    with pytest.raises(UsageError):
        resolve_models(words)


def test_repeated_model_has_a_number(small, wide):
    names = [entry.name for entry in resolve_models([str(small), str(wide), str(small), str(small)])]
    assert names == [str(small), str(wide), f"{small} (2)", f"{small} (3)"]


def test_base_is_the_first_model_or_the_named_one():
    assert chosen_base(None, ["a", "b"]) == "a"
    assert chosen_base("b", ["a", "b"]) == "b"
    with pytest.raises(UsageError, match=r"--against techer: .*did you mean teacher"):
        chosen_base("techer", ["teacher", "student"])


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"max_position_embeddings": "many"}'])
def test_config_without_max_length(small, tmp_path, content):
    shutil.copytree(small, tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(content)
    assert one(tmp_path / "model").max_length is None


@pytest.mark.parametrize(
    ("way", "precision"),
    [("", "fp32"), (":openvino", "fp32"), (":onnxruntime", "fp32"), (":openvino-bf16", "bf16")],
)
def test_a_folder_knows_its_precision_whichever_runtime_it_runs_in(small, way, precision):
    assert one(f"{small}{way}").precision == precision


def test_bare_file_has_unknown_precision(small):
    assert one(f"{small / 'model.onnx'}:openvino").precision == "unknown"


def test_unknown_model_lists_what_a_model_may_be():
    reason = one("nowhere").reason
    assert ".onnx or .ort" in reason
    assert "teacher" not in reason
