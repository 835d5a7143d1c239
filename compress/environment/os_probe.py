"""Reads small system files and program output; what cannot be read is empty rather than an error."""

from __future__ import annotations

import subprocess
from pathlib import Path

UNKNOWN = "unknown"


def read_text(path: Path) -> str:
    """Return the text of a small file; empty where it does not exist or may not be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def read_int(path: Path) -> int | None:
    """Return the integer in a small file; None where there is none."""
    text = read_text(path)
    return int(text) if text.isdigit() else None


def command_output(command: list[str]) -> str:
    """Return what a program prints; empty where it is not installed or does not end."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
