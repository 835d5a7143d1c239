"""The starter recipe holds what it was given, whatever characters that has."""

import pytest

from compress.pipeline.commands.init_template import write_starter
from compress.recipe.yaml_lines import Document

PARTS = {
    "task": None,
    "train": None,
    "text": None,
    "label": None,
    "kind": None,
    "teacher": "minilm-l6",
    "student": None,
}
NAMES = ["./model #2", "./a: b", "[v1]", "1e5", "yes", "a, b", "null", "'q'", "two words " * 15 + "end"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["teacher", "student"])
def test_a_folder_keeps_its_name(key, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    write_starter(tmp_path / "my.yaml", **{**PARTS, key: name})
    assert Document((tmp_path / "my.yaml").read_text()).value[key] == name


@pytest.mark.parametrize("label", ["1e5", "#1", "on", "a: b", "007"])
def test_a_column_keeps_its_name(label, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text(f"text,{label}\none,a\ntwo,b\n")
    write_starter(tmp_path / "my.yaml", **{**PARTS, "train": str(rows), "label": label})
    assert Document((tmp_path / "my.yaml").read_text()).value["task"]["label"] == label
