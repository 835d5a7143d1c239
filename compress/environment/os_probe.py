"""Asking the system: its small files and its programs, where a refusal is no answer and no failure."""

from __future__ import annotations

import subprocess
from pathlib import Path

UNKNOWN = "unknown"


def read_text(path: Path) -> str:
    """What a small file says; nothing where it is not there or not for us."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def read_int(path: Path) -> int | None:
    """The integer that a small file holds."""
    text = read_text(path)
    return int(text) if text.isdigit() else None


def command_output(command: list[str]) -> str:
    """What a program prints; nothing where it is not installed or does not end."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
