"""Paths that must work, and start fast, where torch, transformers and datasets are not installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.without_torch import BLOCK, light


def test_the_block_reaches_processes_that_a_command_starts(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    code = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', 'import torch']).returncode)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert "import of torch halted" in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"]])
def test_help_needs_nothing(arguments: list[str]) -> None:
    done = light(*arguments)
    assert done.returncode == 0, done.stderr
    assert "compress" in done.stdout


@pytest.mark.parametrize("what", ["tasks", "kinds", "teachers", "students", "recipes", "losses", "variants", "runs"])
def test_lists_need_no_torch(what: str, tmp_path: Path) -> None:
    done = light("ls", what, "--runs", str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_planning_needs_no_torch(tmp_path: Path, recipe_file: Path) -> None:
    done = light("plan", str(recipe_file), "--runs", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    assert "fine-tuning the teacher" in done.stdout
    assert "estimate: about " in done.stderr


def test_a_vocabulary_is_checked_without_torch(tmp_path: Path, recipe_file: Path) -> None:
    code = "import sys\nfrom compress.cli import main\nmain(sys.argv[1:])\nassert 'torch' not in sys.modules"
    changed = ["--set", "prune={vocabulary: {keep: 9000}}", "--runs", str(tmp_path / "runs")]
    command = [sys.executable, "-c", code, "plan", str(recipe_file), *changed]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "vocabulary: 9,000 pieces cannot be kept" in done.stderr


def test_a_run_that_skips_everything_needs_no_torch(finished_run: Path) -> None:
    done = light("run", str(finished_run.parent / "tiny.yaml"), "--runs", str(finished_run.parent / "runs"))
    assert done.returncode == 0, done.stderr
    assert "nothing changed: reading rows, fine-tuning the teacher" in done.stderr


def test_predicting_loads_no_recipe(finished_run: Path) -> None:
    """Its schema takes a fifth of the time to the first answer."""
    (exported,) = (finished_run.parent / "runs" / ".steps").glob("export-teacher-onnx-fp32-*")
    code = (
        "import sys\nfrom compress.cli import main\nassert main(sys.argv[1:]) == 0\n"
        "assert 'compress.recipe.schema' not in sys.modules"
    )
    command = [sys.executable, "-c", code, "predict", str(exported), "a sunny day"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_an_openvino_export_predicts_without_torch(finished_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")

    (source,) = (finished_run.parent / "runs" / ".steps").glob("export-teacher-onnx-fp32-*")
    from tests.variant_builder import build

    build("openvino-fp32", source, tmp_path)
    output, expected = light("predict", str(tmp_path), "a sunny day"), light("predict", str(source), "a sunny day")
    assert output.returncode == 0, output.stderr
    assert output.stdout.split()[:1] == expected.stdout.split()[:1] != []
