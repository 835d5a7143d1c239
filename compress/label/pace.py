"""When the next request may be sent: requests a minute, and pauses that the service asks for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from threading import Event, Lock

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before a request is repeated the first time, and at most; doubled from one time to the next."""


class Stopped(Exception):
    """Another request failed for good: this one is not sent."""


class Pace:
    """Shared by all requests of a command; ``stop`` ends every wait."""

    def __init__(
        self,
        requests_per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        self.stop = Event()
        self._interval = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._next, self._lock, self._clock, self._wait = 0.0, Lock(), clock, wait

    def wait_for_turn(self) -> None:
        """Return when a request may be sent; raises `Stopped` if none may be sent any more."""
        with self._lock:
            turn = max(self._next, self._clock())
            self._next = turn + self._interval
        self.sleep(turn - self._clock())

    def pause(self, seconds: float) -> None:
        """Send no request before so many seconds have passed: the service is busy for all of them."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)

    def sleep(self, seconds: float) -> None:
        """Wait, unless the command stops."""
        if self.stop.is_set() or (seconds > 0 and self._wait(self.stop, seconds)):
            raise Stopped


def back_off(retry: int) -> float:
    """Return the seconds before a request is repeated for the ``retry``-th time, from 0.

    Half of it is random, so that requests which failed together do not come back together.
    """
    return float(min(LONGEST_WAIT, FIRST_WAIT * 2**retry) * random.uniform(0.5, 1.0))
