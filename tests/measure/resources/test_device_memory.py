"""Memory on an accelerator, by a stand-in for NVML: no device is needed."""

import os
import sys
from types import SimpleNamespace

import pytest

from compress.measure.timing.process_limits import device_memory


class NVMLError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch):
    """NVML with these processes on its one device, as number and bytes; an error instead where one is given."""

    def make(*processes, refuse=None):
        def running(handle):
            if refuse:
                raise NVMLError(refuse)
            return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in processes]

        library = SimpleNamespace(
            NVMLError=NVMLError,
            nvmlInit=lambda: None,
            nvmlDeviceGetCount=lambda: 1,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetName=lambda handle: "H200",
            nvmlDeviceGetComputeRunningProcesses=running,
        )
        monkeypatch.setitem(sys.modules, "pynvml", library)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return make


@pytest.fixture
def torch(monkeypatch):
    """Torch as far as memory is concerned, used on CUDA or not."""

    def make(used):
        cuda = SimpleNamespace(is_initialized=lambda: used, max_memory_allocated=lambda: 5)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    return make


def test_cpu_uses_no_device_memory(nvml):
    nvml((os.getpid(), 7))
    assert device_memory("cpu") == (None, None)


@pytest.mark.parametrize("used", [True, False])
def test_device_memory_of_all_runtimes_is_read_from_nvml(nvml, torch, used):
    nvml((1, 9), (os.getpid(), 7))
    torch(used)
    assert device_memory("cuda") == (7, "NVML: the process, with what CUDA itself takes")


@pytest.mark.parametrize("processes", [(), ((os.getpid(), None),)])
def test_torch_is_used_where_nvml_does_not_list_the_process(nvml, torch, processes):
    nvml(*processes)
    torch(used=True)
    assert device_memory("cuda")[0] == 5
    assert "torch" in device_memory("cuda")[1]
    torch(used=False)
    assert device_memory("cuda")[0] is None
    assert "NVML does not list this process" in device_memory("cuda")[1]


def test_reasons_are_reported(nvml, torch, monkeypatch):
    torch(used=False)
    nvml(refuse="Not Supported")
    assert device_memory("cuda") == (None, "memory on the device is not measured: NVML reports: Not Supported")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install 'compress-encoders[gpu]'" in device_memory("cuda")[1]
