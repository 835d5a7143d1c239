"""What is asked of NVML, with a stand-in for it."""

import os
import sys
from types import SimpleNamespace

import pytest

from compress.measure.interference.gpu_monitor import GpuMonitor


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


def test_on_the_cpu_there_is_nothing_to_watch():
    found = GpuMonitor.find("cpu")
    assert found.missing is found.clock_limits() is found.other_load(0) is None


def test_without_nvml_the_reason_is_told(monkeypatch, watch):
    assert watch(refuse=True).missing == "not watched on CUDA: NVML reports: Not Supported"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    missing = GpuMonitor.find("cuda").missing or ""
    assert missing.startswith("not watched on CUDA: nvidia-ml-py is not installed")


def test_what_holds_the_clock_down_is_named_once(watch):
    assert watch(bits=0x01 | 0x02).clock_limits() == ()  # idle, or clocks that a user has set
    assert watch(bits=0x20 | 0x40 | 0x04).clock_limits() == ("its power limit", "heat")


def test_the_work_of_others_is_what_is_not_the_sessions_own(watch):
    mine, other = os.getpid(), 1
    assert watch(samples=[(mine, 5, 90), (other, 5, 20), (other, 9, 40)]).other_load(100) == pytest.approx(0.3)
    assert watch(samples=[(mine, 5, 90), (other, -5, 20)]).other_load(100) == 0.0
    assert watch(samples=None).other_load(100) == 0.0
    assert watch(samples=[(other, 5, 20)], there=[other]).other_load(100) is None
