"""What is asked of NVML, with a stand-in for it."""

import os
import sys
from types import SimpleNamespace

import pytest

from compress.measure.resources.nvml import Nvml


class NVMLError(Exception):
    """As NVML's own."""


def nvml(samples=(), there=None, bits=0, refuse=False):
    def reasons(handle):
        if refuse:
            raise NVMLError("Not Supported")
        return bits

    def used(handle, since):
        if samples is None:
            raise NVMLError("Not Found")
        return [SimpleNamespace(pid=pid, timeStamp=since + after, smUtil=share) for pid, after, share in samples]

    own = [os.getpid()] if there is None else there
    return SimpleNamespace(
        NVMLError=NVMLError,
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
    def find(**values) -> Nvml:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setitem(sys.modules, "pynvml", nvml(**values))
        return Nvml.open()

    return find


def test_nothing_is_read_without_a_device():
    assert Nvml().clock_limits() is Nvml().other_load(0) is None


def test_missing_nvml_has_a_reason(monkeypatch, watch):
    refusing = watch(refuse=True)
    assert refusing.clock_limits() is None
    assert refusing.missing == "NVML reports: Not Supported"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (Nvml.open().missing or "").startswith("nvidia-ml-py is not installed")


def test_clock_limits_are_named_once(watch):
    assert watch(bits=0x01 | 0x02).clock_limits() == ()  # idle, or clocks that a user has set
    assert watch(bits=0x20 | 0x40 | 0x04).clock_limits() == ("its power limit", "heat")


def test_other_load_excludes_the_sessions_own_processes(watch):
    mine, other = os.getpid(), 1
    assert watch(samples=[(mine, 5, 90), (other, 5, 20), (other, 9, 40)]).other_load(100) == pytest.approx(0.3)
    assert watch(samples=[(mine, 5, 90), (other, -5, 20)]).other_load(100) == 0.0
    assert watch(samples=None).other_load(100) is None
    assert watch(samples=[(other, 5, 20)], there=[other]).other_load(100) is None
