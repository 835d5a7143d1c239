import os

import pytest

from compress import environment
from compress.environment import cpu, os_probe
from compress.environment.cpu import describe_cpu_state


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


CPU = "devices/system/cpu"


def test_a_whole_machine(tmp_path):
    files = {
        f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave",
        f"{CPU}/cpu1/cpufreq/scaling_governor": "performance",
        f"{CPU}/cpu0/cpufreq/scaling_min_freq": "800000",
        f"{CPU}/cpu0/cpufreq/scaling_max_freq": "3500000",
        f"{CPU}/cpu1/cpufreq/scaling_min_freq": "400000",
        f"{CPU}/cpu1/cpufreq/scaling_max_freq": "2500000",
        f"{CPU}/intel_pstate/no_turbo": "0",
        f"{CPU}/cpu0/cache/index2/level": "2",
        f"{CPU}/cpu0/cache/index2/size": "2048K",
        f"{CPU}/cpu0/cache/index3/level": "3",
        f"{CPU}/cpu0/cache/index3/size": "32M",
        "class/dmi/id/sys_vendor": "QEMU",
    }
    proc = write(tmp_path / "proc", {"cpuinfo": "processor : 0\nflags : sse2 hypervisor"})
    result = describe_cpu_state(write(tmp_path / "sys", files), proc)
    assert result.governor == "performance, powersave"
    assert result.frequency == (400.0, 3500.0)
    assert result.turbo is True
    assert result.hypervisor == "QEMU"
    assert result.last_level_cache == 32 * 2**20


def test_a_system_that_tells_nothing(tmp_path):
    result = describe_cpu_state(tmp_path / "sys", tmp_path / "proc")
    assert (result.governor, result.frequency, result.turbo) == (None, None, None)
    assert (result.hypervisor, result.last_level_cache) == (None, None)


def test_a_real_machine_of_a_maker_that_also_makes_virtual_ones(tmp_path):
    system = write(tmp_path / "sys", {"class/dmi/id/sys_vendor": "Microsoft Corporation"})
    assert describe_cpu_state(system, write(tmp_path / "proc", {"cpuinfo": "flags : sse2"})).hypervisor is None


def test_a_virtual_machine_without_a_name(tmp_path):
    proc = write(tmp_path / "proc", {"cpuinfo": "flags : hypervisor"})
    assert describe_cpu_state(tmp_path / "sys", proc).hypervisor == "unnamed"


@pytest.mark.parametrize(("boost", "turbo"), [("1", True), ("0", False)])
def test_turbo_where_the_driver_calls_it_boost(tmp_path, boost, turbo):
    system = write(tmp_path / "sys", {f"{CPU}/cpufreq/boost": boost})
    assert describe_cpu_state(system, tmp_path).turbo is turbo


def test_a_load_that_cannot_be_read(tmp_path, monkeypatch):
    def refuse():
        raise OSError

    monkeypatch.setattr(os, "getloadavg", refuse)
    assert describe_cpu_state(tmp_path, tmp_path).load is None


def test_power_is_known_where_there_is_a_battery(monkeypatch):
    psutil = pytest.importorskip("psutil")
    for plugged, expected in ((True, "mains"), (False, "battery"), (None, None)):
        battery = type("Battery", (), {"power_plugged": plugged})
        monkeypatch.setattr(psutil, "sensors_battery", lambda battery=battery: battery, raising=False)
        assert cpu._power() == expected
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
    assert cpu._power() is None


def test_the_quota_of_a_container(tmp_path):
    own = tmp_path / "own"
    own.write_text("0::/\n")
    assert os_probe.core_quota(tmp_path, own) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert os_probe.core_quota(tmp_path, own) == 1.5


def test_driver_version(monkeypatch):
    monkeypatch.setattr(environment, "command_output", lambda command: "550.54.15\n550.54.15\n")
    assert environment.driver_version() == "550.54.15"
    monkeypatch.setattr(environment, "command_output", lambda command: "No devices were found\n")
    assert environment.driver_version() is None
