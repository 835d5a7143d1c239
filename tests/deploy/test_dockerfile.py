"""The Dockerfile copies what exists, and its command predicts; the image itself is not built here."""

import json
import re
from pathlib import Path

from tests.measure.conftest import write_variant
from tests.without_torch import light

ROOT = Path(__file__).resolve().parents[2]
LINES = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").splitlines()


def test_what_it_copies_exists_and_is_all_that_a_wheel_is_built_of():
    copied = [name for line in LINES if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
    shipped = re.search(r"only-include = \[(.*?)\]", (ROOT / "pyproject.toml").read_text())[1]
    assert set(json.loads(f"[{shipped}]")) < set(copied)


def test_its_command_reads_texts_and_writes_predictions(tmp_path):
    model = write_variant(tmp_path / "model", 8)
    words = [
        word for line in LINES if line.startswith(("ENTRYPOINT", "CMD")) for word in json.loads(line.split(" ", 1)[1])
    ]
    program, *arguments = [str(model) if word == "/model" else word for word in words]
    assert program == "compress"
    done = light(*arguments, text="good film\nbad plot\n")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == ["good film", "bad plot"]
