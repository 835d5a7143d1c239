"""How long this process's threads waited for a core: time that other processes used, not the model.

Linux counts for every thread the time in which it was runnable and did not run (the second number of its schedstat). A
call's time without the longest of these waits is what it would have taken with its cores to itself, apart from what the
other processes left in the caches. Ratios rest on it: between two models of different speed a busy neighbour would
otherwise favour the one whose calls fit between two of its turns.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

TASKS = Path("/proc/self/task")
MAX_LINE = 96
"""Bytes."""


class RunQueueWait:
    """The waits of all threads that exist when it is entered; `counts` is whether the system reports them at all."""

    def __enter__(self) -> RunQueueWait:
        """Open the counters."""
        self._counters: list[int] = []
        if sys.platform == "linux":
            with suppress(OSError):
                for thread in TASKS.iterdir():
                    with suppress(OSError):  # a thread may have ended meanwhile
                        self._counters.append(os.open(thread / "schedstat", os.O_RDONLY))
        # A kernel without these statistics shows zeros, also for the thread that is running now.
        self.counts = any(_read(counter)[0] for counter in self._counters)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the counters."""
        for counter in self._counters:
            os.close(counter)

    def read(self) -> list[int]:
        """Return the nanoseconds that each thread has waited so far."""
        return [_read(counter)[1] for counter in self._counters]

    def since(self, before: list[int]) -> float:
        """Return the milliseconds that the thread that waited longest has waited since ``before``."""
        waits = (after - early for early, after in zip(before, self.read(), strict=True))
        return max(0, *waits) / 1e6 if self._counters else 0.0


def _read(counter: int) -> tuple[int, int]:
    """Return the nanoseconds that a thread has run and has waited; zeros for a thread that has ended."""
    try:
        ran, waited, *_ = os.pread(counter, MAX_LINE, 0).split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return 0, 0
