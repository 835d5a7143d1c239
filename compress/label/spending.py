"""The money that answers cost, and the limit that is never exceeded."""

from __future__ import annotations

from threading import Condition

from compress.errors import CompressError
from compress.recipe.label_schema import Prices

MILLION = 1_000_000


class LimitReached(CompressError):
    """The next request could exceed the recipe's limit."""


def cost(prices: Prices | None, input_tokens: float, output_tokens: float) -> float | None:
    """Return the price of so many tokens; None where no prices are stated."""
    if prices is None:
        return None
    return (input_tokens * prices.input + output_tokens * prices.output) / MILLION


class Spending:
    """Counts what was spent; a request may begin only if it fits below the limit at its highest possible price."""

    def __init__(self, limit: float | None, spent: float) -> None:
        self.limit, self.spent = limit, spent
        self._reserved, self._running, self._change = 0.0, 0, Condition()

    def reserve(self, most: float) -> None:
        """Set aside the highest price of a request; waits for running requests, which may turn out cheaper.

        Raises:
            LimitReached: if it does not fit although nothing else is running.
        """
        with self._change:
            while self.limit is not None and self.spent + self._reserved + most > self.limit:
                if not self._running:
                    message = f"the limit of {self.limit:g} is reached: {self.spent:.4f} is spent, and the next"
                    raise LimitReached(f"{message} request may cost {most:.4f}")
                self._change.wait()
            self._running += 1
            self._reserved += most

    def settle(self, most: float, actual: float) -> None:
        """Replace what was set aside for a request by what it cost."""
        with self._change:
            self._running -= 1
            self._reserved = self._reserved - most if self._running else 0.0
            self.spent += actual
            self._change.notify_all()
