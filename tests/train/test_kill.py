"""Killed with SIGKILL and started again, every kind of training must end in the weights of a training left alone."""

import os
from pathlib import Path

import pytest

from compress.prune.prune_vocabulary import prune_vocabulary
from compress.storage.file_digests import digests
from tests.command_process import run_script

ATTEMPTS = Path(__file__).with_name("attempts.py")

KILLS = {
    "finetune": ["update:2", "update:9", "tensors:1", "best:2", "named:3", "update:9", "saved:1"],
    "probe": ["fit:1", "fit:2", "probe:1", "update:2", "fit:1", "update:9"],
    "open": ["update:2", "update:9", "update:5", "best:1", "saved:1"],
    "grid": ["update:2", "best:9", "update:9", "saved:1"],
    "unfreeze": ["update:2", "update:6", "update:5", "best:2"],
    "distill": ["best:1", "update:7", "tensors:2", "named:2", "saved:1"],
    "recover": ["best:1", "update:5"],
    "own": ["best:1", "update:7", "tensors:2"],
    "qat": ["best:1", "update:7"],
    "part": ["update:7", "tensors:1", "saved:1"],
    "shared": ["update:7", "tensors:2", "saved:1"],
    "light": ["start:1", "best:1", "update:7", "tensors:2", "saved:1"],
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("step", KILLS)
def test_a_killed_training_ends_in_the_same_digest(step, tiny_folder, tiny_model, prepared, tmp_path):
    encoder = tiny_model("bert", head="Model", initializer_range=0.1)
    teacher = tiny_folder(encoder, task=None) if step == "probe" else tiny_folder(tiny_model("bert"))
    if step == "own":
        prune_vocabulary(teacher, prepared, "seen", None, tmp_path / "start")
    done = run_script(ATTEMPTS, step, teacher, prepared, tmp_path, *KILLS[step])
    assert done.returncode == 0, done.stderr
    result = digests(tmp_path / "killed")
    assert result == digests(tmp_path / "whole")
    assert "model.safetensors" in result
    assert not any("training" in name for name in result)
