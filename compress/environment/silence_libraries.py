"""Silences libraries that export, quantize or run models: their logs, tables and progress would mix with ours."""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from threading import RLock

STDERR = 2
"""Its number, by which compiled code writes to it."""

TURN = RLock()
"""What is redirected belongs to the process: two threads that overlapped would not restore it."""


@contextmanager
def silent_libraries() -> Iterator[None]:
    """Suppress what is logged, warned of or written to stdout; import a library inside, since some log on import."""
    with TURN:
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                yield
        finally:
            logging.disable(before)


@contextmanager
def silent_native_code() -> Iterator[None]:
    """Do the same, and suppress what compiled code writes to stderr; for moments only, since it hides ours too."""
    with TURN:
        kept, nowhere = os.dup(STDERR), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDERR)
        try:
            with silent_libraries(), redirect_stderr(io.StringIO()):
                yield
        finally:
            os.dup2(kept, STDERR)
            os.close(kept)
            os.close(nowhere)
