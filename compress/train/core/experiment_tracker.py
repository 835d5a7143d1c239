"""Logging a training to an experiment tracker (tensorboard, wandb, mlflow …), through Accelerate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from accelerate import Accelerator
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

from compress.errors import MissingExtra, UsageError, nearest

TRACKING_DIR = Path("tracked")
"""Folder for trackers that write files, in the current folder."""


class ExperimentTracker:
    """The tracker that the recipe names; without one nothing is logged."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    @contextmanager
    def tracking(self, label: str, settings: Mapping[str, object]) -> Iterator[None]:
        """Start the tracker, if any, for `log` within the block."""
        if not self._accelerator.log_with:
            yield
            return
        scalars = {key: value for key, value in settings.items() if isinstance(value, (str, int, float))}
        self._accelerator.init_trackers(label, config=scalars)
        try:
            yield
        finally:
            for tracker in self._accelerator.trackers:
                tracker.finish()

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log finite values to the tracker, if any."""
        if self._accelerator.log_with:
            self._accelerator.log({key: value for key, value in values.items() if math.isfinite(value)}, step=step)


def check_tracker(name: str) -> None:
    """Refuse a tracker that is unknown or not installed, which Accelerate would ignore."""
    known = sorted(LOGGER_TYPE_TO_CLASS)
    if name not in known:
        raise UsageError(f"unknown tracker '{name}'{nearest(name, known)}.")
    if name not in {str(tracker) for tracker in get_available_trackers()}:
        raise MissingExtra(name, "track")
