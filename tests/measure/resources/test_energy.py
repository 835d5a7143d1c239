import sys
from types import SimpleNamespace

import pytest

from compress.measure.resources.energy import EnergyMeter


@pytest.fixture
def zone(tmp_path):
    """Writes one zone of a made-up /sys/class/powercap."""

    def write(folder, name, joules):
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        (path / "name").write_text(name + "\n")
        (path / "energy_uj").write_text(f"{int(joules * 1e6)}\n")
        return path

    return write


def test_a_package_is_read(tmp_path, zone):
    zone("intel-rapl:0", "package-0", 10)
    zone("intel-rapl:0:0", "core", 7)
    meter = EnergyMeter.find("cpu", tmp_path)
    assert meter.source == "RAPL package-0"
    before = meter.read()
    zone("intel-rapl:0", "package-0", 12.5)
    assert meter.read() - before == pytest.approx(2.5)


def test_packages_add_up_and_count_once(tmp_path, zone):
    zone("intel-rapl:0", "package-0", 1)
    zone("intel-rapl:1", "package-1", 2)
    zone("intel-rapl-mmio:0", "package-0", 1)
    zone("intel-rapl:2", "psys", 50)
    meter = EnergyMeter.find("cpu", tmp_path)
    assert meter.read() == pytest.approx(3)
    assert {"package-0", "package-1"} == set(meter.source.removeprefix("RAPL ").split(", "))


def test_removed_counter_reads_none(tmp_path, zone):
    path = zone("intel-rapl:0", "package-0", 1)
    meter = EnergyMeter.find("cpu", tmp_path)
    (path / "energy_uj").unlink()
    assert meter.read() is None


def test_no_counters(tmp_path):
    meter = EnergyMeter.find("cpu", tmp_path / "nothing")
    assert meter.source.startswith("not measured: this machine has no readable energy counters")
    assert meter.read() is None


def test_unreadable_counters_are_reported(tmp_path, zone, monkeypatch):
    path = zone("intel-rapl:0", "package-0", 1)

    def refuse(self, *arguments, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(path), "read_text", refuse)
    meter = EnergyMeter.find("cpu", tmp_path)
    assert "administrator only" in meter.source
    assert meter.read() is None


def test_invalid_counters_are_reported(tmp_path, zone):
    (zone("intel-rapl:0", "package-0", 1) / "energy_uj").write_text("much\n")
    assert "cannot be read" in EnergyMeter.find("cpu", tmp_path).source


class NVMLError(Exception):
    pass


def nvml(names, millijoules=2500, refuse=None):
    """A stand-in for nvidia-ml-py."""

    def energy(handle):
        if refuse:
            raise NVMLError(refuse)
        return millijoules + handle

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: len(names),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=lambda name: 0,
        nvmlDeviceGetName=lambda handle: names[handle],
        nvmlDeviceGetTotalEnergyConsumption=energy,
    )


@pytest.mark.parametrize(("visible", "joules"), [(None, 2.5), ("1", 2.501), ("GPU-abc", 2.5), ("1,0", 2.501)])
def test_an_accelerator(monkeypatch, visible, joules):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(["H200", "H200"]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    meter = EnergyMeter.find("cuda")
    assert meter.source == "NVML H200"
    assert meter.read() == pytest.approx(joules)


def test_different_accelerators_need_an_explicit_order(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(["H200", "T4"]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert EnergyMeter.find("cuda").source.startswith("not measured: the devices differ")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert EnergyMeter.find("cuda").source == "NVML H200"


def test_accelerator_without_energy_counter(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(["old"], refuse="Not Supported"))
    meter = EnergyMeter.find("cuda")
    assert meter.source == "not measured: NVML reports: Not Supported"
    assert meter.read() is None


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    meter = EnergyMeter.find("cuda")
    assert "pip install 'compress-encoders[gpu]'" in meter.source
    assert meter.read() is None
