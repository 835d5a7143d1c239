"""Tiny exported models of every task kind, as fixtures."""

from pathlib import Path

import pytest
from filelock import FileLock

from compress.model_folder.model_info import TaskInfo
from compress.models.heads import HEADS
from compress.tasks import KINDS
from tests.conftest import machine_folder, make_tiny
from tests.variant_builder import build

LABELS = {
    "classification": ("bad", "good"),
    "multi_label": ("bad", "good", "dull"),
    "token_classification": ("O", "B-x", "I-x"),
}
COLUMNS = {"multiple_choice": ("question", "choices"), "ranking": ("query", "candidates"), "retrieval": ("query",)}


@pytest.fixture(scope="session")
def exported(tmp_path_factory, tiny_folder):
    """Return the folder of an exported model of a kind: ``exported("regression")``; each is made once a session."""
    place = machine_folder(tmp_path_factory) / "bulk-models"
    place.mkdir(exist_ok=True)

    def make(kind: str = "classification", variant: str = "onnx-fp32") -> Path:
        folder = place / f"{kind}-{variant}"
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                work = place / f".{folder.name}"
                if variant != "onnx-fp32":
                    source = make(kind)
                    work.mkdir()
                    build(variant, source, work)
                    work.rename(folder)
                    return folder
                columns = COLUMNS.get(kind) or tuple(KINDS[kind].defaults.get("text", ["text"]))
                task = TaskInfo(
                    name="films",
                    kind=kind,
                    text=columns,
                    labels=LABELS.get(kind, ()),
                    metric="x",
                    max_length=32,
                    max_answer=4,
                )
                outputs = tuple(map(str, range(KINDS[kind].output_count(task))))
                model = make_tiny("bert", labels=outputs, head=HEADS[KINDS[kind].head].suffix, sentence_size=8)
                work.mkdir()
                build(variant, tiny_folder(model, task), work)
                work.rename(folder)
        return folder

    return make


@pytest.fixture
def model(exported) -> Path:
    """A classifier of films."""
    return exported()
