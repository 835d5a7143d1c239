"""Runs commands where torch and everything else that the base install lacks cannot be imported."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCKED = ("torch", "transformers", "datasets", "sklearn", "accelerate", "onnx", "optimum", "safetensors")
BLOCK = f"import sys\nsys.modules.update(dict.fromkeys({BLOCKED!r}))\n"


def light(*arguments: str, cwd: Path | None = None, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command where these libraries cannot be imported, in the processes that it starts neither."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *sys.path])}
        command = [sys.executable, "-m", "compress", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=cwd, input=text, check=False, timeout=120, env=environment
        )
