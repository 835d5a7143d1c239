"""What the options of several commands have in common: formats of the output, and numbers with their limits."""

import argparse
from collections.abc import Callable
from typing import Any, Protocol

from compress.console import Console

OUTPUTS = ("human", "json", "quiet")
"""Formats of the output; the first is the default."""

Handler = Callable[[argparse.Namespace, Console], None]


class AddCommand(Protocol):
    """Adds a command by its name, with what its help says and what it does; returns its parser for further options."""

    def __call__(self, name: str, text: str, handler: Handler, /) -> argparse.ArgumentParser:
        """Add it."""


LEAST_BYTES = 1000
"""Fewer than any model has: a number below it lacks its unit."""


def size(text: str) -> float:
    """Return bytes: `5MB`."""
    from compress.recipe.field_types import bytes_of

    if text.isdecimal() and int(text[:20]) < LEAST_BYTES:
        raise argparse.ArgumentTypeError(f"give the unit: {text[:20]}MB")
    return _with_unit(bytes_of, text)


def latency(text: str) -> float:
    """Return milliseconds: `0.5ms`."""
    from compress.recipe.field_types import milliseconds_of

    return _with_unit(milliseconds_of, text)


LARGEST_SEED = 2**31 - 1
"""As recipes have it."""


def count(text: str, most: int, least: int = 1) -> int:
    """Return a whole number from ``least`` to ``most``."""
    value = int(text) if text.isdecimal() and len(text) <= 20 else -1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, got '{text[:40]}'")
    return value


def _with_unit(parse: Callable[[str], Any], text: str) -> float:
    """Return a number with its unit, or say what was expected."""
    try:
        return float(parse(text))
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error
