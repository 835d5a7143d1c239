"""The Dockerfile copies what exists, and its command predicts; the image itself is not built here."""

import json
import re
from pathlib import Path

import pytest

import compress
from compress.model_folder.model_info import read_info, write_info
from tests.measure.conftest import write_variant
from tests.variant_builder import build
from tests.without_torch import light

ROOT = Path(__file__).resolve().parents[2]
LINES = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").splitlines()


def test_what_it_copies_exists_and_is_all_that_a_wheel_is_built_of():
    copied = [name for line in LINES if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
    shipped = re.search(r"only-include = \[(.*?)\]", (ROOT / "pyproject.toml").read_text())[1]
    assert set(json.loads(f"[{shipped}]")) < set(copied)


def run(folder, text, *options):
    """Run the image's command, as `docker run … compress OPTIONS < text` does, and return its lines."""
    words = [
        word for line in LINES if line.startswith(("ENTRYPOINT", "CMD")) for word in json.loads(line.split(" ", 1)[1])
    ]
    program, *arguments = [str(folder) if word == "/model" else word for word in words]
    assert program == "compress"
    done = light(*arguments, *options, text=text)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_its_command_writes_a_line_for_each_line(tmp_path):
    lines = ["good film", "", "bad plot", "  \t", "", "fine"]
    answers = run(write_variant(tmp_path / "model", 8), "\n".join(lines) + "\n")
    assert [each["text"] for each in answers] == lines
    assert [each.get("reason") for each in answers] == [None, "no text", None, "no text", "no text", None]
    assert [each["label"] is None for each in answers] == [not line.strip() for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(("scored", "batch"), [(None, 1), (3, 3)])
def test_a_model_whose_answers_depend_on_the_batch_runs_as_it_was_scored(scored, batch, tiny_folder, tmp_path):
    """With a real file of dynamic INT8; its answers in a batch of 32 differ."""
    graph, folder = tmp_path / "onnx", tmp_path / "int8"
    for name, source, work in (("onnx-fp32", tiny_folder("bert"), graph), ("onnx-int8", graph, folder)):
        work.mkdir()
        build(name, source, work)
    info = read_info(folder)
    write_info(folder, info.model_copy(update={"variant": info.variant.model_copy(update={"scored_batch": scored})}))
    lines = ["good film", "bad", "the plot is not so very good but it was fine", "so dull", "unheardof", "fine plot"]
    text, model = "\n".join(lines) + "\n", compress.open(folder)
    answers = [each["probability"] for each in run(folder, text)]
    assert answers == [each["probability"] for each in model.predict(lines, batch=batch)]
    assert answers == [each["probability"] for each in model.predict(lines)]
    together = [each["probability"] for each in run(folder, text, "--batch", "32")]
    assert together == [each["probability"] for each in model.predict(lines, batch=32)]
    assert together != answers
