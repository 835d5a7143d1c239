"""Logging to the experiment tracker that a recipe names, through Accelerate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from accelerate import Accelerator

TRACKING_FOLDER = Path("tracked")
"""For trackers that write files, in the current folder."""


class ExperimentTracker:
    """Logs a training where the recipe names a tracker, and does nothing elsewhere."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    @contextmanager
    def running(self, label: str, settings: Mapping[str, object]) -> Iterator[None]:
        """Start the tracker with the training's settings, and finish it after the block."""
        scalars = {key: value for key, value in settings.items() if isinstance(value, (str, int, float))}
        self._accelerator.init_trackers(label, config=scalars)
        try:
            yield
        finally:
            for tracker in self._accelerator.trackers:
                tracker.finish()

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log finite values."""
        self._accelerator.log({key: value for key, value in values.items() if math.isfinite(value)}, step=step)
