"""Runs the script in a folder's README.md as a user would: in that folder, in a process of its own."""

import re
import subprocess
import sys

from compress.export.runners.runner_code import MAX_LINES


def run_readme(folder, *texts):
    """Return what the script prints for these texts, by line."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    scripts = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (code,) = [script for script in scripts if "import compress" not in script]
    assert len(code.splitlines()) <= MAX_LINES
    command = [sys.executable, "-c", code, *texts]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
