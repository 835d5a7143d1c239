import importlib
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from compress import environment
from compress.environment import Cpu, Environment, Gpu, describe, os_probe
from compress.environment.cpu import read_cpuinfo, read_sysctl
from compress.errors import MissingExtra

X86 = """processor\t: 0
model name\t: Some Xeon
flags\t\t: fpu sse2 avx2 avx512f avx512_vnni amx_int8
"""
ARM = """processor\t: 0
Features\t: fp asimd asimddp i8mm bf16
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


def test_cpuinfo_of_x86():
    assert read_cpuinfo(X86) == ("Some Xeon", ("avx2", "avx512", "avx512_vnni", "amx_int8"))


def test_cpuinfo_of_arm_names_maker_and_part():
    model, result = read_cpuinfo(ARM)
    assert model == "cpu implementer 0x41 cpu part 0xd40"
    assert result == ("neon", "dotprod", "i8mm", "bf16")


def test_cpuinfo_that_tells_nothing_is_unknown():
    assert read_cpuinfo("processor: 0\n") == ("unknown", None)


def test_sysctl_of_macos():
    lines = ["machdep.cpu.brand_string: Apple M2", "hw.optional.neon: 1", "hw.optional.arm.FEAT_DotProd: 1"]
    text = "\n".join([*lines, "hw.optional.avx2_0: 0"])
    assert read_sysctl(text) == ("Apple M2", ("neon", "dotprod"))
    assert read_sysctl("") == ("unknown", None)


@pytest.mark.parametrize(
    ("instructions", "vnni", "bf16"),
    [(("avx2",), False, False), (("avx_vnni",), True, False), (("dotprod", "bf16"), True, True), (None, None, None)],
)
def test_what_instructions_mean(instructions, vnni, bf16):
    cpu = Cpu("x", "x86_64", instructions, 1, 1)
    assert (cpu.has_vnni, cpu.has_bf16) == (vnni, bf16)


@pytest.fixture
def group(tmp_path, monkeypatch):
    """A machine of eight cores and no limits, whose cgroup files a test writes."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    root, own = tmp_path / "cgroup", tmp_path / "own"
    root.mkdir()
    own.write_text("0::/\n")
    return root, own


def test_cores_without_a_limit(group):
    assert environment.usable_cores(*group) == 8


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 8), ("350000 100000", 3), ("50000 100000", 1)])
def test_cores_of_a_v2_quota(group, quota, cores):
    (group[0] / "cpu.max").write_text(quota + "\n")
    assert environment.usable_cores(*group) == cores


def test_cores_of_a_v2_quota_above_the_own_group(group):
    root, own = group
    own.write_text("0::/service/part\n")
    (root / "service" / "part").mkdir(parents=True)
    (root / "service" / "cpu.max").write_text("200000 100000\n")
    (root / "service" / "part" / "cpu.max").write_text("max 100000\n")
    assert environment.usable_cores(root, own) == 2


def test_cores_of_a_v1_quota(group):
    root, own = group
    own.write_text("4:cpu,cpuacct:/docker\n5:memory:/docker\n")
    (root / "cpu" / "docker").mkdir(parents=True)
    (root / "cpu" / "docker" / "cpu.cfs_quota_us").write_text("400000\n")
    (root / "cpu" / "docker" / "cpu.cfs_period_us").write_text("100000\n")
    assert environment.usable_cores(root, own) == 4


def test_an_unlimited_v1_quota(group):
    root, own = group
    (root / "cpu").mkdir()
    (root / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (root / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert environment.usable_cores(root, own) == 8


def test_memory_of_a_container(group):
    root, own = group
    whole = environment.memory_limit(root, own)
    (root / "memory.max").write_text("max\n")
    assert environment.memory_limit(root, own) == whole
    (root / "memory.max").write_text("1048576\n")
    assert environment.memory_limit(root, own) == 1048576


def test_versions_are_of_what_is_installed():
    result = environment.versions(["numpy", "no-such-library"])
    assert list(result) == ["numpy"]


def test_nvidia_smi():
    assert environment.read_nvidia_smi("NVIDIA H200, 143771\n") == (Gpu("NVIDIA H200", 143771 * 2**20),)
    assert environment.read_nvidia_smi("") == ()


def test_devices_without_torch_come_from_the_driver(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(environment, "command_output", lambda command: "Tesla T4, 15360\n")
    assert environment.cuda_devices() == (Gpu("Tesla T4", 15360 * 2**20),)


def test_a_missing_program_has_no_output():
    assert os_probe.command_output(["no-such-program-here"]) == ""


def test_describing_asks_for_nothing_that_was_not_wanted(tmp_path):
    result = describe(tmp_path / "not" / "yet")
    assert result.gpus is None
    assert result.hub is None
    assert result.disk_free > 0
    assert result.cpu.cores >= 1
    assert "numpy" in result.versions


def test_describing_imports_nothing_heavy():
    heavy = "{'torch', 'transformers', 'datasets', 'onnxruntime', 'numpy'}"
    code = (
        f"import sys; from compress.environment import describe; describe(); sys.exit(bool({heavy} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def machine(**changes):
    values = {"model": "Some Xeon", "machine": "x86_64", "instructions": ("avx2",), "cores": 2, "cores_of_machine": 8}
    return Environment("Linux", "3.11", Cpu(**{**values, **changes}), 2**33, 2**34, {"numpy": "2"})


def test_the_fingerprint_is_of_hardware_alone():
    assert machine().fingerprint == machine(cores_of_machine=64).fingerprint
    assert machine().fingerprint != machine(cores=4).fingerprint
    assert machine().fingerprint != machine(instructions=("avx2", "avx512")).fingerprint
    assert len(machine().fingerprint) == 12


def test_the_hub_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert environment.hub_state() == "switched off by HF_HUB_OFFLINE"


def test_the_hub_answers_or_says_why_not(monkeypatch):
    def answer(error):
        def urlopen(request, timeout):
            raise error

        monkeypatch.setattr(urllib.request, "urlopen", urlopen)
        return environment.hub_state()

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    with urllib.error.HTTPError("https://huggingface.co", 405, "no", {}, None) as refusal:
        assert answer(refusal) == "reachable"
    assert answer(urllib.error.URLError("no route")) == "not reachable (no route)"
    monkeypatch.undo()
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")
    assert environment.hub_state() == "not reachable (unknown url type: 'hub.example')"


def test_requiring_a_library():
    assert environment.require("json", "train").__name__ == "json"
    with pytest.raises(MissingExtra) as caught:
        environment.require("no_such_library.part", "train")
    assert caught.value.hint == "pip install 'compress-encoders[train]'"


def test_requiring_a_broken_library_tells_what_it_lacks(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("import what_it_lacks\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_lacks"):
        environment.require("broken_library", "train")
