"""Every diff of docs/extending.md applies to a copy of the package, and what it adds runs through a tiny pipeline."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
DIFFS = {
    title: re.search(r"```diff\n(.*?)```", section, re.DOTALL)[1]
    for title, section in re.findall(r"^## (An? [^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
FILES = re.compile(r"^\+\+\+ b/(\S+)", re.MULTILINE)


def test_each_addition_touches_at_most_four_files():
    assert set(DIFFS) == set(TRIALS)
    for title, diff in DIFFS.items():
        assert len(FILES.findall(diff)) <= 4, title
    assert len(FILES.findall(DIFFS["A model step"])) == 3
    assert "class Ordinal(TextKind):" in DIFFS["A task kind"]  # which is none of the kinds


def try_loss(extended):
    report = extended.run("--set", "distill.losses.token_norm=0.1", "--until", "distill")
    assert report is None
    history = extended.only("distill", "compress.json")["training"]["history"]
    assert all(evaluation["losses"]["token_norm"] > 0 for evaluation in history if evaluation["update"])


def try_criterion(extended):
    extended.run("--set", "prune.criterion=signed_mean", "--until", "cut")
    assert extended.only("cut", "compress.json")["pruning"]["criterion"] == "signed_mean"


def try_quantizer(extended):
    report = extended.run("--set", "quantize.methods=[products]")
    assert "pruned/onnx-int8-products" in [row["model"] + "/" + row["variant"]["name"] for row in report["rows"]]


def try_format(extended):
    report = extended.run("--set", "export=[onnx, onnx-data]")
    (row,) = (row for row in report["rows"] if row["model"] == "pruned" and row["variant"]["format"] == "onnx-data")
    assert row["status"] == "ok"


def try_step(extended):
    """The averaged model is planned after pruning, runs, and lies between the cut and the recovered model."""
    extended.run("--set", "average=0.25", "--until", "average")
    folders = [*(extended.folder / "runs" / ".steps").glob("*/model.safetensors")]
    before, after, mean = (
        load_file(next(path for path in folders if path.parent.name.startswith(f"{step}-")))
        for step in ("cut", "recover", "average")
    )
    for name, weights in mean.items():
        np.testing.assert_allclose(weights, 0.25 * before[name] + 0.75 * after[name], atol=1e-6, err_msg=name)
    assert any((before[name] != after[name]).any() for name in mean)


def try_kind(extended):
    """A third class, which no row has, lies between the two of the tiny recipe."""
    for name in ("train", "test"):
        path = extended.recipe.parent / f"{name}.csv"
        path.write_text(path.read_text().replace("sunny", "5").replace("rainy", "1"))
    report = extended.run("--set", "task.kind=ordinal", "--set", "task.labels=['1', '3', '5']")
    assert report["task"]["metric"] == "mae"


def try_family(extended):
    """Random CamemBERT weights take every path: fine-tuned, distilled, pruned unevenly, exported, quantized."""
    extended.python("from compress.models.tiny import Path, write_tiny_model as w; w(Path('camembert'), 'camembert')")
    extended.run("--set", f"teacher={extended.folder / 'camembert'}")
    assert extended.only("recover", "config.json")["model_type"] == "compress-camembert"


TRIALS = {
    "A loss": try_loss,
    "A pruning criterion": try_criterion,
    "A quantizer": try_quantizer,
    "An export format": try_format,
    "A model step": try_step,
    "A task kind": try_kind,
    "A model family": try_family,
}


class Extended:
    """A copy of the package with one diff applied, and the tiny recipe to run with it."""

    def __init__(self, folder, recipe):
        self.folder, self.recipe = folder, recipe

    def python(self, code, *arguments):
        """Run ``code`` with the copy as the installed package."""
        environment = os.environ | {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]

    def run(self, *options):
        command = "import sys; from compress.cli import main; sys.exit(main(sys.argv[1:]))"
        self.python(command, "run", str(self.recipe), "--set", "name=extended", *options)
        report = self.folder / "runs" / "extended" / "report.json"
        return json.loads(report.read_text()) if report.is_file() else None

    def only(self, step, file):
        """Return the content of ``file`` in the folder of the one step of that name."""
        (path,) = (self.folder / "runs" / ".steps").glob(f"{step}-*/{file}")
        return json.loads(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("title", DIFFS)
def test_the_diff_applies_and_runs(title, tmp_path, recipe_file):
    copy = tmp_path / "extended"
    for name in ("compress", "teachers", "students", "recipes"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    patched = subprocess.run(
        ["git", "apply", "--recount", "-C1", "-"],
        input=DIFFS[title],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert patched.returncode == 0, patched.stderr
    TRIALS[title](Extended(copy, recipe_file))
