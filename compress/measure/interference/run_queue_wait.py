"""How long this process's threads stood in line for a core, which is the neighbours' time and not the model's.

Linux counts for every thread the time in which it could have run and was not let (the second number of its schedstat).
A call's time without the longest of these waits is what it would have taken with its cores to itself, but for what the
neighbours left in the caches. Ratios rest on it: between two models of unlike speed a busy neighbour would otherwise
favour the one whose calls fit between two of its turns.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

TASKS = Path("/proc/self/task")
LONGEST_LINE = 96
"""Bytes."""


class RunQueueWait:
    """The waits of all threads there are when it is entered; `counts` says whether the system tells of them at all."""

    def __enter__(self) -> RunQueueWait:
        """Open the counters."""
        self._counters: list[int] = []
        if sys.platform == "linux":
            with suppress(OSError):
                for thread in TASKS.iterdir():
                    with suppress(OSError):  # a thread may have ended meanwhile
                        self._counters.append(os.open(thread / "schedstat", os.O_RDONLY))
        # A kernel that was built or told not to count shows zeros, also of the thread that is running just now.
        self.counts = any(_read(counter)[0] for counter in self._counters)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close them."""
        for counter in self._counters:
            os.close(counter)

    def read(self) -> list[int]:
        """Nanoseconds that each thread has waited so far."""
        return [_read(counter)[1] for counter in self._counters]

    def since(self, before: list[int]) -> float:
        """Milliseconds that the thread that waited longest has waited since ``before``."""
        waits = (after - early for early, after in zip(before, self.read(), strict=True))
        return max(0, *waits) / 1e6 if self._counters else 0.0


def _read(counter: int) -> tuple[int, int]:
    """Nanoseconds that a thread has run and has waited; a thread that ended meanwhile tells neither."""
    try:
        ran, waited, *_ = os.pread(counter, LONGEST_LINE, 0).split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return 0, 0
