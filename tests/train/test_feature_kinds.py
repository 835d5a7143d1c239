"""`features: last4` for every task kind with a linear head: fitted, saved, loaded and exported with equal outputs."""

import json

import pytest

from compress.data.splits.prepare_splits import prepare_splits
from compress.model_folder.model_info import read_info
from compress.models.load_save import load
from compress.recipe.schema import Task
from compress.recipe.training_schema import Finetune
from compress.train.finetune import finetune
from tests.variant_builder import build

FILMS = ("good film", "bad film", "great plot", "so very dull")
ROWS = {
    "classification": lambda n: {"text": FILMS[n % 4], "label": ["good", "bad"][n % 2]},
    "multi_label": lambda n: {"text": FILMS[n % 4], "label": [["good"], ["bad", "dull"], [], ["dull"]][n % 4]},
    "regression": lambda n: {"text": FILMS[n % 4], "label": float(n % 4)},
    "multiple_choice": lambda n: {"question": "is it", "choices": list(FILMS[: 2 + n % 3]), "label": n % 2},
    "ranking": lambda n: {"query": "is it", "candidates": list(FILMS), "label": [int(at == n % 4) for at in range(4)]},
    "question_answering": lambda n: {
        "question": "is it",
        "context": FILMS[n % 4],
        "answers": [FILMS[n % 4].split()[0]],
    },
}
"""A row of train, by kind; tags have tests of their own."""
TEXTS = {
    "multiple_choice": ["question", "choices"],
    "ranking": ["query", "candidates"],
    "question_answering": ["question", "context"],
}


def prepared(kind, folder):
    """Return a prepared data folder of made-up rows."""
    files = {}
    for role, count in (("train", 40), ("select", 12), ("test", 12)):
        path = folder / f"{role}.jsonl"
        lines = (json.dumps(ROWS[kind](n) | {"id": f"{role}{n}"}) for n in range(count))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        files[role] = str(path)
    settings = {"text": TEXTS[kind]} if kind in TEXTS else {}
    settings |= {"label": "answers", "max_answer": 4} if kind == "question_answering" else {}
    (folder / "data").mkdir()
    prepare_splits(Task(name="films", kind=kind, data=files, max_length=32, **settings), 0, folder / "data")
    return folder / "data"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ROWS)
def test_a_fitted_head_is_saved_loaded_and_exported(kind, tiny_model, tiny_folder, tmp_path):
    data, teacher = prepared(kind, tmp_path), tmp_path / "teacher"
    encoder = tiny_folder(tiny_model("bert", head="Model", num_hidden_layers=4), task=None)
    finetune(str(encoder), data, Finetune(features="last4"), 0, teacher)
    assert (read_info(teacher).task.kind, load(teacher).config.head_features) == (kind, "last4")
    (tmp_path / "onnx").mkdir()
    parity = build("onnx-fp32", teacher, tmp_path / "onnx").variant.parity
    assert parity["max_abs_difference"] < 1e-4 * max(1.0, parity["largest_output"])
