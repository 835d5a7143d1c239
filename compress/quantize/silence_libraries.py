"""Silences libraries that quantize: their logs, tables and progress bars would mix with ours."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def silent_libraries() -> Iterator[None]:
    """Suppress what is logged, warned of or written to stdout; import a library inside, since some log on import."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
