"""Reading and writing compress.json."""

from pathlib import Path

import pytest

from compress.errors import ModelError
from compress.model_folder.model_info import FolderInfo, read_info


def test_error_for_a_run_folder_names_where_its_models_are(tmp_path):
    with pytest.raises(ModelError) as caught:
        read_info(tmp_path)
    assert "winner/TARGET" in caught.value.hint


def test_newer_schema_version_is_refused(tmp_path):
    info = FolderInfo(step="onnx-int8", made_by="tests").model_dump_json()
    (tmp_path / "compress.json").write_text(info.replace('"schema_version":1', '"schema_version":2'), encoding="utf-8")
    with pytest.raises(ModelError, match="written by a newer version of compress"):
        read_info(tmp_path)


def test_error_for_a_runs_name_names_its_winner(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cpu", "_everywhere", ".hidden"):
        (tmp_path / "runs" / "my" / "winner" / name).mkdir(parents=True)
        (tmp_path / "runs" / "my" / "winner" / name / "compress.json").touch()
    with pytest.raises(ModelError) as raised:
        read_info(Path("my"))
    assert raised.value.hint.endswith(f"its own: {Path('runs/my/winner/cpu')}")


def test_error_for_a_target_that_is_not_there_names_the_others(tmp_path):
    (tmp_path / "winner" / "cpu").mkdir(parents=True)
    (tmp_path / "winner" / "cpu" / "compress.json").touch()
    with pytest.raises(ModelError) as raised:
        read_info(tmp_path / "winner" / "gpu")
    assert str(tmp_path / "winner" / "cpu") in raised.value.hint
