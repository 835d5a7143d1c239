"""Pruning with recovery: from models in memory, from folders, and killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.errors import ModelError
from compress.model_info import digests, read_info
from compress.models.encoder_parts import layer_shapes
from compress.models.load_save import load
from compress.prune.prune_step import CUT, prune, prune_from_model
from compress.recipe.schema import Task
from compress.recipe.training_schema import Prune

GOOD, BAD = ("good", "great", "fine"), ("bad", "dull", "not")
CLOSING = ("film", "plot", "it was so", "the bit of plot")


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A prepared folder of films."""
    folder = tmp_path_factory.mktemp("films")
    lines = [
        json.dumps({"text": f"the {word} {rest} {number % 7 * 'very '}", "label": label})
        for number in range(8)
        for label, words in (("bad", BAD), ("good", GOOD))
        for word in words
        for rest in CLOSING
    ]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    (folder / "held.jsonl").write_text("\n".join(lines[:24]))
    sources = {
        "train": str(folder / "rows.jsonl"),
        "select": str(folder / "held.jsonl"),
        "test": str(folder / "held.jsonl"),
    }
    task = Task.model_validate({"name": "films", "kind": "classification", "data": sources, "max_length": 32})
    work = folder / "data"
    work.mkdir()
    prepare_splits(task, 0, work)
    return work


RECOVER = {"epochs": 1, "batch_size": 16, "learning_rate": 1e-3, "precision": "fp32"}


def settings(**changes):
    return Prune.model_validate({"heads": 0.25, "ffn": 0.5, "batches": 4, "recover": RECOVER} | changes)


def test_a_folder_becomes_a_smaller_one(data, tiny_folder, tmp_path):
    student = tiny_folder("bert")
    made = prune(student, student, data, settings(), 0, tmp_path)
    info = read_info(tmp_path)
    assert info.step == "prune"
    assert info.shape == made.info.shape
    assert sum(info.shape.heads) == 6
    assert sum(info.shape.ffn) == 64
    assert all(width % 16 == 0 for width in info.shape.ffn)
    assert made.rows_seen > 0
    assert {path.partition("/")[0] for path in digests(tmp_path)} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    assert layer_shapes(load(tmp_path)) == list(zip(info.shape.heads, info.shape.ffn, strict=True))


def test_without_recovery_it_is_the_cut_alone(data, tiny_folder, tmp_path):
    made = prune(tiny_folder("distilbert"), None, data, settings(recover=False), 0, tmp_path)
    assert made.rows_seen == 0
    assert read_info(tmp_path).shape.family == "distilbert"
    assert not (tmp_path / CUT).exists()


def test_the_same_seed_prunes_the_same(data, tiny_folder, tmp_path):
    student, found = tiny_folder("bert"), []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        prune(student, student, data, settings(recover=False), 3, tmp_path / name)
        found.append(digests(tmp_path / name)["model.safetensors"])
    assert found[0] == found[1]


def test_what_was_cut_before_a_kill_is_gone_on_with(data, tiny_folder, tmp_path):
    student = tiny_folder("bert")
    (tmp_path / "done").mkdir()
    (tmp_path / "work").mkdir()
    prune(student, None, data, settings(recover=False), 0, tmp_path / "done")
    (tmp_path / "done").rename(tmp_path / "work" / CUT)
    prune(student, student, data, settings(heads=0.5, recover=False), 0, tmp_path / "work")
    assert sum(read_info(tmp_path / "work").shape.heads) == 6  # scored and cut once, not anew


def test_models_in_memory(data, tiny_model, tiny_tokenizer, tiny_task):
    roles = load_prepared(data)
    rows, held = list(roles.rows("train")), list(roles.rows("select"))
    model = tiny_model("roberta", pad_token_id=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pruned = prune_from_model(model, tiny_tokenizer, rows, held, tiny_task, settings())
    assert layer_shapes(model) == [(4, 64), (4, 64)]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert sum(heads for heads, _ in layer_shapes(pruned)) == 6
    cut_only = prune_from_model(model, tiny_tokenizer, rows, held, tiny_task, settings(recover=False))
    assert layer_shapes(cut_only) == layer_shapes(pruned)


def test_a_family_that_cannot_is_refused(data, tiny_folder, tmp_path):
    with pytest.raises(ModelError, match="modernbert cannot be pruned"):
        prune(tiny_folder("modernbert"), None, data, settings(), 0, tmp_path)


SCRIPT = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from compress.prune.prune_step import prune
from compress.recipe.training_schema import Prune
student, data, work, settings = sys.argv[1:]
prune(Path(student), Path(student), Path(data), Prune.model_validate_json(settings), 0, Path(work))
"""


@pytest.mark.slow
def test_killed_in_the_middle_it_ends_with_the_same_weights(data, tiny_folder, tmp_path):
    student = tiny_folder("bert")
    recover = RECOVER | {"epochs": 12, "checkpoint": {"minutes": None, "steps": 3}}
    asked = settings(recover=recover).model_dump_json()

    def start(work):
        work.mkdir(exist_ok=True)
        command = [sys.executable, "-c", SCRIPT, str(student), str(data), str(work), asked]
        return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})

    whole = start(tmp_path / "whole")
    killed = start(tmp_path / "killed")
    deadline = time.monotonic() + 120
    while not any((tmp_path / "killed").glob("training/0/*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert any((tmp_path / "killed").glob("training/0/*"))
    assert (tmp_path / "killed" / CUT).is_dir()
    assert start(tmp_path / "killed").wait() == 0
    assert whole.wait() == 0
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")


@pytest.mark.slow
def test_two_processes_cut_one_model_together(data, tiny_folder, tmp_path):
    student = tiny_folder("bert")
    (tmp_path / "script.py").write_text(SCRIPT)
    arguments = [str(student), str(data), str(tmp_path / "work"), settings().model_dump_json()]
    (tmp_path / "work").mkdir()
    (tmp_path / "alone").mkdir()
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([*launch, str(tmp_path / "script.py"), *arguments], env=environment, check=True, timeout=200)
    prune(student, student, data, settings(), 0, tmp_path / "alone")
    assert read_info(tmp_path / "work").shape == read_info(tmp_path / "alone").shape
    assert digests(tmp_path / "work").keys() == digests(tmp_path / "alone").keys()
