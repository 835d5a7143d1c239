"""What a step is given when it runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compress.console import Console
from compress.pipeline.step_store import StepRecord


@dataclass(frozen=True)
class StepContext:
    """The inputs of a step, its working folder and the console."""

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
    """Inputs that are cached and were not made in this run."""
    skipped: frozenset[str] = frozenset()
    """Absent inputs that did not fail: they need what this machine does not have, or another absent step."""
    track: str | None = None
    """The experiment tracker of training steps."""

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file with a schema version into the working folder."""
        text = json.dumps({"schema_version": 1, **content}, indent=1)
        (self.work / name).write_text(text + "\n", encoding="utf-8")
