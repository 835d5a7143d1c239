"""What a step finds before it when it starts to work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compress.console import Console
from compress.pipeline.step_store import StepRecord


@dataclass(frozen=True)
class Workbench:
    """The inputs, the place to work in, and where to speak."""

    inputs: Mapping[str, Path]
    """By step name, the folders of what this step needs; a failed optional step is absent."""
    work: Path
    """Empty, or what a killed attempt left; the step leaves exactly its result here."""
    console: Console
    records: Mapping[str, StepRecord] = field(default_factory=dict)
    """The records of the inputs."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why optional inputs are absent."""
    reused: frozenset[str] = frozenset()
    """Inputs that stood and were not made in this run."""
    left_out: frozenset[str] = frozenset()
    """Absent inputs that did not fail: they need what this machine does not have, or another absent step."""
    track: str | None = None
    """The experiment tracker of training steps."""

    def leave(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write facts into a JSON file of the working folder."""
        told = json.dumps({"schema_version": 1, **facts}, indent=1)
        (self.work / name).write_text(told + "\n", encoding="utf-8")
