import subprocess
import sys

import pytest

from compress.train.fast_paths.malloc_tuning import keep_freed_memory

KEEPS = """
import ctypes, platform
from pathlib import Path
from compress.train.fast_paths.malloc_tuning import keep_freed_memory

def own():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20

with keep_freed_memory():
    block = bytearray(200 * 2**20)
    full = own()
    del block
    held = own()
print(full - held < 50, full - own() > 150)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's knobs")
def test_memory_is_kept_within_the_block_and_returned_afterwards():
    done = subprocess.run([sys.executable, "-c", KEEPS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_other_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr("compress.train.fast_paths.malloc_tuning.platform.libc_ver", lambda: ("", ""))
    monkeypatch.setattr("compress.train.fast_paths.malloc_tuning.ctypes.CDLL", None)
    with keep_freed_memory():
        pass
