"""What is asked of NVML, with a stand-in for it."""

import os
import sys
from types import SimpleNamespace

import pytest

from compress.measure.interference.monitor import GpuMonitor


class NVMLError(Exception):
    """As NVML's own."""


class NotFound(NVMLError):
    """No samples yet."""


def nvml(samples=(), there=None, bits=0, refuse=False):
    def reasons(handle):
        if refuse:
            raise NVMLError("Not Supported")
        return bits

    def used(handle, since):
        if samples is None:
            raise NotFound
        return [SimpleNamespace(pid=pid, timeStamp=since + after, smUtil=share) for pid, after, share in samples]

    own = [os.getpid()] if there is None else there
    return SimpleNamespace(
        NVMLError=NVMLError,
        NVMLError_NotFound=NotFound,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetName=lambda handle: "H200",
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetCurrentClocksThrottleReasons=reasons,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [
            SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in own
        ],
        nvmlDeviceGetProcessUtilization=used,
    )


@pytest.fixture
def watch(monkeypatch):
    def find(**told) -> GpuMonitor:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setitem(sys.modules, "pynvml", nvml(**told))
        return GpuMonitor.find("cuda")

    return find


def test_cpu_has_no_gpu_monitor():
    found = GpuMonitor.find("cpu")
    assert found.missing is found.clock_limits() is found.other_load(0) is None


def test_missing_nvml_has_a_reason(monkeypatch, watch):
    assert watch(refuse=True).missing == "not watched on CUDA: NVML reports: Not Supported"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    missing = GpuMonitor.find("cuda").missing or ""
    assert missing.startswith("not watched on CUDA: nvidia-ml-py is not installed")


def test_clock_limits_are_named_once(watch):
    assert watch(bits=0x01 | 0x02).clock_limits() == ()  # idle, or clocks that a user has set
    assert watch(bits=0x20 | 0x40 | 0x04).clock_limits() == ("its power limit", "heat")


def test_other_load_excludes_the_sessions_own_processes(watch):
    mine, other = os.getpid(), 1
    assert watch(samples=[(mine, 5, 90), (other, 5, 20), (other, 9, 40)]).other_load(100) == pytest.approx(0.3)
    assert watch(samples=[(mine, 5, 90), (other, -5, 20)]).other_load(100) == 0.0
    assert watch(samples=None).other_load(100) == 0.0
    assert watch(samples=[(other, 5, 20)], there=[other]).other_load(100) is None
