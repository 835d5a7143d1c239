"""What holds of a finished run of any kind of task: its published model scores as it did, and it equals itself."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from compress.cli import main


def check_published(folder: Path, rows: Path) -> None:
    """Score the model that ``folder/zoo`` has again, and compare the run with itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compress.publish.measured.SECONDS", 1.0)
        measured = _json("verify", f"{folder / 'zoo'}/tiny", "--measure", "--rows", str(rows))["measured"]["score"]
    assert measured["not_judged"] is None
    assert measured["now"]["value"] == pytest.approx(measured["published"]["value"], abs=1e-6)
    check_equal_to_itself(folder)


def check_equal_to_itself(folder: Path) -> None:
    """Compare a run with itself: no answer changed."""
    shown = _json("report", "tiny", str(folder / "runs" / "tiny"), "--runs", str(folder / "runs"))
    pair = shown["targets"][0]["sides"][1]["pair"]
    assert (pair["changed"], pair["difference"]["value"]) == (0, 0.0)


def _json(*words: str) -> Any:
    out = io.StringIO()
    with redirect_stdout(out):
        assert main([*words, "--format", "json"]) in (0, 3)  # so small a model may be timed as slower
    return json.loads(out.getvalue())
