"""Tasks and files of a few rows."""

from pathlib import Path

import pytest

from compress.recipe.task_schema import Task


@pytest.fixture
def task_of():
    """Makes a task: ``task_of(train=path, test=path, kind="regression")``; keys of data are taken for data."""
    from compress.recipe.task_schema import Data

    def make(**settings):
        data = {key: value for key, value in settings.items() if key in Data.model_fields}
        data = {key: str(value) if isinstance(value, Path) else value for key, value in data.items()}
        rest = {key: value for key, value in settings.items() if key not in Data.model_fields}
        return Task(**{"kind": "classification", "data": data, **rest})

    return make


@pytest.fixture
def write(tmp_path: Path):
    """Writes a file of text or bytes: ``write("train.tsv", "text\\tlabel\\n…")``."""

    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make
