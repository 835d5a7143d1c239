"""What .ci/further-pythons does with the Pythons of a machine; make and the interpreters are scripts here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OWN = sys.version_info.minor
TARGETS = ("python-env", "test-python")
OTHERS = [minor for minor in (11, 12, 13) if minor != OWN]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not all(map(shutil.which, ("bash", "flock"))),
    reason="continuous integration is on Linux",
)


def script(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/bash", *lines, ""]))
    path.chmod(0o755)


@pytest.fixture
def clone(tmp_path):
    """A clone whose make notes its arguments, on a machine where nothing but the Python of .venv starts."""
    for name in (".ci/further-pythons", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    script(tmp_path / ".venv/bin/python", f'exec {sys.executable} "$@"')
    make(tmp_path)
    for minor in (*OTHERS, 14):
        script(tmp_path / f"path/python3.{minor}", "exit 127")  # as pyenv's do for a version that is not chosen
    return tmp_path


def make(clone, *lines):
    environment = 'mkdir -p "${3#OTHER_VENV=}"'
    script(clone / "path/make", f'echo "$1 $2${{4:+ $4}}" >> {clone}/calls', environment, *lines)


def run(clone):
    """The exit code, what make was called with, and what was written to the error stream."""
    changed = {
        "PATH": f"{clone}/path:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(clone / "cache"),
        "PYENV_ROOT": str(clone / "pyenv"),
    }
    command = [clone / ".ci/further-pythons"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | changed)
    calls = clone / "calls"
    return done.returncode, calls.read_text().splitlines() if calls.exists() else [], done.stderr.splitlines()


def test_a_python_that_does_not_start_is_skipped_with_a_line(clone):
    lines = [f"Python 3.{each} is not on this machine: its export and runtime tests are skipped" for each in OTHERS]
    assert run(clone) == (0, [], lines)


def test_admitted_pythons_are_tested_on_the_path_and_in_pyenv(clone):
    first, second = OTHERS
    script(clone / f"path/python3.{first}", "exit 0")
    script(clone / "path/python3.14", "exit 0")
    for patch in (2, 10):
        script(clone / f"pyenv/versions/3.{second}.{patch}/bin/python3", "exit 0")
    newest = clone / f"pyenv/versions/3.{second}.10/bin/python3"
    code, calls, errors = run(clone)
    fast = f"PYTHON=python3.{first} OTHER_MARKED=slow or wheel or browser"
    expected = [f"{target} {words}" for words in (fast, f"PYTHON={newest}") for target in TARGETS]
    assert (code, calls, errors) == (0, expected, [])
    kept = [path.name.partition("-")[0] for path in (clone / "cache/compress-tests").iterdir() if path.is_dir()]
    assert sorted(kept) == [f"python3.{each}" for each in OTHERS]


def test_an_installation_that_fails_is_reported_and_no_failure(clone):
    script(clone / f"path/python3.{OTHERS[0]}", "exit 0")
    make(clone, "echo no network; exit 1")
    code, calls, errors = run(clone)
    assert (code, calls) == (0, [f"python-env PYTHON=python3.{OTHERS[0]} OTHER_MARKED=slow or wheel or browser"])
    assert errors[0] == "no network"
    assert errors[1].startswith(f"Python 3.{OTHERS[0]} could not be installed (")
    assert not [path for path in (clone / "cache/compress-tests").iterdir() if path.is_dir()]


def test_tests_that_fail_are_a_failure_after_all_pythons(clone):
    for each in OTHERS:
        script(clone / f"path/python3.{each}", "exit 0")
    make(clone, '[ "$1" = python-env ]')
    code, calls, _ = run(clone)
    assert code == 1
    assert len(calls) == 2 * len(OTHERS)


def test_a_full_disk_is_a_reason_to_skip(clone):
    script(clone / f"path/python3.{OTHERS[0]}", "exit 0")
    script(clone / "path/df", 'echo "Filesystem blocks used available"; echo "/dev/x 9 9 3000000"')
    code, calls, errors = run(clone)
    assert (code, calls) == (0, [])
    assert "where 3 are free: its export and runtime tests are skipped" in errors[0]
