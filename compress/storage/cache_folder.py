"""Where results that can be computed again are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return COMPRESS_CACHE, else ~/.cache/compress."""
    return Path(os.environ.get("COMPRESS_CACHE") or "~/.cache/compress").expanduser()
