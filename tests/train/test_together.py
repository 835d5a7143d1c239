"""Two processes under torchrun, with gloo: nothing is dropped, and the result is that of one process up to rounding."""

import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from compress.data.splits.prepare_splits import load_prepared
from compress.environment import describe_cpu
from compress.model_folder.model_info import read_info

pytestmark = pytest.mark.slow

TOGETHER = Path(__file__).with_name("together.py")


def run_alone(teacher, data, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMPRESS_CACHE", str(folder / "cache"))
        runpy.run_path(str(TOGETHER))["main"](teacher, data, folder)


def run_twice(teacher, data, folder):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    folders = {"PYTHONPATH": str(Path(__file__).parents[2]), "COMPRESS_CACHE": str(folder / "cache")}
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | folders
    done = subprocess.run(
        [*command, *map(str, [TOGETHER, teacher, data, folder])],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def launched(tmp_path_factory, tiny_folder, tiny_model, prepared):
    folder = tmp_path_factory.mktemp("together")
    still = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0, "initializer_range": 0.1}
    teacher = tiny_folder(tiny_model("bert", **still))
    result = {}
    for count, run in ((1, run_alone), (2, run_twice)):
        index = folder / str(count)
        index.mkdir()
        run(teacher, prepared, index)
        seen = [json.loads((index / f"seen-{rank}.json").read_text()) for rank in range(count)]
        result[count] = (json.loads((index / "found.json").read_text()), seen, index)
    return result


def test_every_row_is_seen_by_exactly_one_process(launched, prepared):
    (_, [alone], _), (_, shares, _) = launched[1], launched[2]
    rows = len(load_prepared(prepared).rows("train"))
    assert Counter(alone) == dict.fromkeys(range(rows), 4)
    # Each epoch's last batch holds one row: the second process runs it too, and it weighs nothing there.
    together = Counter(shares[0]) + Counter(shares[1])
    assert sum(together.values()) == 4 * rows + 4
    assert set(together) == set(range(rows))
    assert all(count >= 4 for count in together.values())
    assert len(shares[1]) > 4 * rows / 3


def test_the_result_is_that_of_one_process(launched):
    one, two = launched[1][0], launched[2][0]
    assert np.allclose(one["logits"], two["logits"], atol=1e-3)
    assert one["score"] == two["score"] == 1.0


def test_two_processes_resume_bit_for_bit(launched):
    for count in (1, 2):
        result = launched[count][0]
        assert result["goes_on"] == result["logits"]


def test_all_processes_take_the_precision_that_the_main_one_chose(launched):
    folder = launched[2][2]
    first, second = (json.loads((folder / f"chosen-{rank}.json").read_text()) for rank in range(2))
    assert first == second
    kept = [json.loads(file.read_text()) for file in (folder / "cache").glob("precision/*.json")]
    assert [choice["precision"] for choice in kept] == [first["precision"]] * len(kept)
    assert len(kept) == int(bool(describe_cpu().has_bf16))


def test_steps_run_on_both_and_one_writes(launched):
    for count in (1, 2):
        folder = launched[count][2]
        assert read_info(folder / "student").shape.hidden == 16
        assert not list(folder.glob("*/training"))
        assert launched[count][0]["student"] is not None
