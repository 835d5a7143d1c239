"""What identifies a model in fingerprints: the contents of all files that say what it computes."""

import json
import shutil

import pytest

from compress.errors import UsageError
from compress.model_sources import folder_identity, identity, source_kind, source_name

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
]


@pytest.fixture
def folder(tmp_path):
    model = tmp_path / "model"
    for name in ("1_Pooling", "2_Dense"):
        (model / name).mkdir(parents=True)
        (model / name / "config.json").write_text(json.dumps({"of": name}))
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"1")
    (model / "2_Dense" / "model.safetensors").write_bytes(b"2")
    (model / "modules.json").write_text(json.dumps(MODULES))
    return model


@pytest.mark.parametrize("changed", ["model.safetensors", "1_Pooling/config.json", "2_Dense/model.safetensors"])
def test_a_model_for_sentence_transformers_is_all_its_modules(folder, tmp_path, changed):
    before = identity(str(folder), None)
    shutil.copytree(folder, tmp_path / "copy")
    assert identity(str(tmp_path / "copy"), None) == before
    (folder / changed).write_bytes(b"9")
    assert identity(str(folder), None) != before


def test_folders_beside_a_plain_model_do_not_count(folder):
    (folder / "modules.json").unlink()
    before = identity(str(folder), None)
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"9")
    assert identity(str(folder), None) == before


@pytest.mark.parametrize("read", [lambda source: source_kind(source, "teachers"), folder_identity])
def test_a_home_of_no_user_is_a_folder_that_does_not_exist(read):
    with pytest.raises(UsageError, match="there is no folder ~nobody-here/model"):
        read("~nobody-here/model")
    assert source_name("~nobody-here/model") == "~nobody-here/model"
