"""A virtual environment for each tool in the cache folder, created once for its pinned versions."""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from compress.measure.timing.worker_process import error_line
from compress.pipeline.strip_paths import strip_paths
from compress.storage.file_names import cache_folder

TORCH = "torch==2.13.0"
"""Always pinned: a plain `torch` may be another build of several gigabytes."""
PATIENCE = 1800.0
DONE = "installed"


class NotInstalled(Exception):
    """An environment could not be created; the message says why."""


@dataclass(frozen=True)
class Environment:
    """The virtual environment of a tool."""

    name: str
    pins: tuple[str, ...]
    no_dependencies: tuple[str, ...] = ()
    """Installed without their dependencies, some of which they do not need."""
    removed: tuple[str, ...] = ()
    """Removed again: dependencies that do without, and that fail beside another build of torch."""

    @property
    def folder(self) -> Path:
        """Its folder, which depends on the pins and the Python version."""
        key = " ".join([sys.version, *self.pins, *self.no_dependencies, *self.removed])
        return cache_folder() / "benchmarks" / f"{self.name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")

    def install(self) -> None:
        """Create it unless it exists. An incomplete one is created again."""
        if (self.folder / DONE).is_file():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            venv.create(self.folder, with_pip=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotInstalled(f"no environment could be created for {self.name}: {strip_paths(str(error))}") from error
        self._pip("install", "--no-compile", *self.pins)
        if self.no_dependencies:
            self._pip("install", "--no-compile", "--no-deps", *self.no_dependencies)
        if self.removed:
            self._pip("uninstall", "--yes", *self.removed)
        (self.folder / DONE).touch()

    def _pip(self, action: str, *words: str) -> None:
        index = os.environ.get("TORCH_INDEX")
        more = ["--extra-index-url", index] if index and action == "install" else []
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", action, "-q", *more, *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired as error:
            raise NotInstalled(f"{self.name} was not installed in {PATIENCE:.0f} s") from error
        if done.returncode:
            raise NotInstalled(f"{self.name} cannot be installed: {strip_paths(error_line(done.stderr))}")


BASE = (TORCH, "numpy==2.4.6", "safetensors==0.8.0")
TEXTBREWER = Environment(
    "textbrewer",
    (*BASE, "transformers==4.57.6", "tensorboard==2.21.0", "tqdm==4.70.1", "textbrewer==0.2.1.post1"),
)
"""Its last release, of 2022, names no transformers; 4.57 is the last before 5."""
TORCHDISTILL = Environment(
    "torchdistill",
    (*BASE, "transformers==5.23.0", "accelerate==1.15.0", "scipy==1.17.1", "PyYAML==6.0.3", "pillow==13.0.0"),
    # torchvision requires the CUDA build of torch; torchdistill requires torchvision and a compiler.
    no_dependencies=("torchvision==0.28.0", "torchdistill==1.1.5"),
)
