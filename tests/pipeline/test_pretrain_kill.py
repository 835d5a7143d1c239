"""Killed with SIGKILL, a pretraining resumes to the same weights; two processes make those of one, up to rounding."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from compress.storage.file_digests import file_digest
from tests.command_process import run_command, run_script
from tests.pipeline.test_pretrain_run import write_recipe
from tests.pretrain.conftest import make_documents, write_text

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals")]

ATTEMPT = Path(__file__).with_name("pretrain_attempt.py")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A recipe with dropout and masks that differ from update to update, and its weights when nothing interrupts it."""
    folder = tmp_path_factory.mktemp("kill")
    train = {"length": 32, "short": {"length": 16, "share": 0.5}, "batch_size": 7, "steps": 12, "learning_rate": 0.01}
    train |= {"evaluations": 4, "checkpoint": {"minutes": None, "steps": 2}}
    text = write_text(folder / "corpus.txt", make_documents())
    recipe = write_recipe(folder, text, train={**train, "precision": "fp32"})
    done = run_script(ATTEMPT, recipe, folder / "whole")
    assert done.returncode == 0, done.stderr
    return recipe


def with_data_of(whole, name):
    """A folder of runs with the vocabulary, corpus and packing of the whole run: equal word counts make pieces whose
    order the tokenizers library leaves to chance."""
    steps = whole.parent / "whole" / ".steps"
    for step in ("vocabulary", "corpus", "packing"):
        (made,) = steps.glob(f"{step}-*")
        shutil.copytree(made, whole.parent / name / ".steps" / made.name)
    return whole.parent / name


def weights(runs):
    return runs / "tiny-bert" / "model" / "model.safetensors"


def test_a_killed_training_resumes_bit_for_bit(whole):
    runs = with_data_of(whole, "killed")
    for update in (4, 5, 4):  # within the short sequences, at their end, within the long ones
        done = run_script(ATTEMPT, whole, runs, update)
        assert done.returncode == -signal.SIGKILL, done.stderr
    done = run_script(ATTEMPT, whole, runs)
    assert "resuming from the checkpoint" in done.stderr + done.stdout
    assert file_digest(weights(runs)) == file_digest(weights(whole.parent / "whole"))


def test_two_processes_make_the_weights_of_one(whole):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    # Without dropout, which every process draws for its own rows.
    shape = "{layers: 1, hidden: 16, heads: 2, ffn: 32, dropout: 0.0}"
    words = ["pretrain", whole, "--set", f"shape={shape}", "--runs"]
    run_command(*words, with_data_of(whole, "one"))
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "compress"]
    arguments = [*launch, *map(str, words), str(with_data_of(whole, "two"))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    one, two = (load_file(weights(whole.parent / name)) for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=0.0, atol=2e-3)
