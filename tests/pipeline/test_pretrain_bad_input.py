"""What a pretraining cannot work with ends in one message and an exit code."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torch import Tensor

from compress.cli import main
from compress.pretrain.methods import bert_pretraining
from compress.pretrain.scores import held_out  # noqa: F401  # before its loss is replaced
from tests.pipeline.test_pretrain_run import write_recipe
from tests.pretrain.conftest import make_documents, write_text

ROOT = Path(__file__).parents[2]


def started(recipe: Path, runs: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as a user does."""
    command = [sys.executable, "-m", "compress", "pretrain", str(recipe), "--runs", str(runs)]
    variables = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=300)


def error_of(recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command, and return its error; there is one, without a traceback."""
    code = main(["pretrain", str(recipe), "--runs", str(runs)])
    return checked(code, *capsys.readouterr())


def checked(code: int, output: str, error: str) -> str:
    """Return the error of a command that failed; there is one, without a traceback."""
    assert code in (1, 2), error
    assert "Traceback" not in error + output
    assert error.count("error:") == 1, error
    return error


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.txt", b"", "the corpus is empty"),
        ("corpus.txt", b"\n \n\n", "the corpus is empty"),
        ("corpus.txt", b"a\0b\n" * 50, "NUL byte"),
        ("corpus.txt.gz", gzip.compress(b"A sentence of a text.\n\n" * 20_000)[:-40], "gzip"),
        ("corpus.jsonl", json.dumps({"txet": "A sentence."}).encode() + b"\n", "has no column 'text'; did you mean"),
    ],
    ids=["empty", "blank", "binary", "truncated gzip", "no column"],
)
def test_a_corpus_that_cannot_be_read(
    name: str, content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    error = error_of(write_recipe(tmp_path, tmp_path / name), tmp_path / "runs", capsys)
    assert message in error
    assert name in error or message == "the corpus is empty"
    assert not (tmp_path / "runs" / "tiny-bert" / "model").exists()


@pytest.mark.slow
def test_a_hub_set_that_cannot_be_reached(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    text = {"hub": "nobody/no-such-set", "held_out": 0.4}
    recipe = write_recipe(tmp_path, tmp_path / "none.txt", text=text)
    done = started(recipe, tmp_path / "runs", HF_HUB_OFFLINE="1")
    assert "nobody/no-such-set" in checked(done.returncode, done.stdout, done.stderr)


def test_a_folder_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path, write_text(tmp_path / "corpus.txt", make_documents()))
    (tmp_path / "runs").write_text("not a folder")
    assert "runs" in error_of(recipe, tmp_path / "runs", capsys)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc, where nobody may make a folder")
def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path, write_text(tmp_path / "corpus.txt", make_documents()))
    assert "/proc/runs" in error_of(recipe, Path("/proc/runs"), capsys)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_recipe(tmp_path, write_text(tmp_path / "corpus.txt", make_documents()))
    command = ["pretrain", str(recipe), "--runs", str(tmp_path / "runs")]
    command += ["--set", "train.checkpoint={minutes: null, steps: 1}"]
    model, finite, calls = tmp_path / "runs" / "tiny-bert" / "model", bert_pretraining.word_losses, iter(range(1000))

    def breaking(logits: Tensor, targets: Tensor) -> Tensor:
        return finite(logits, targets) * (1.0 if next(calls) < 2 else float("nan"))

    with monkeypatch.context() as patched:
        patched.setattr(bert_pretraining, "word_losses", breaking)
        assert main(command) == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert error.count("error:") == 1
    assert "nan" in error.lower()
    assert not model.exists()
    assert main([*command, "--verbose"]) == 0
    output = capsys.readouterr()
    assert "resuming from the checkpoint at update 2 of 4" in output.out + output.err
    assert model.is_dir()
