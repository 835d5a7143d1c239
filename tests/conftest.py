"""What all tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data that COMPRESS_DATA names; its rows never enter this repository."""
    named = os.environ.get("COMPRESS_DATA")
    if not named:
        pytest.skip("COMPRESS_DATA names no folder of real data")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"COMPRESS_DATA names {named}, which is no folder")
    return folder
