from dataclasses import replace

from compress.environment import LIBRARIES, Cpu, CpuState, Environment, Gpu
from compress.environment.doctor import doctor_rows
from compress.environment.libraries import BY_HAND

CPU = Cpu("Some Xeon", "x86_64", ("avx2", "avx512_vnni"), 2, 8)
VERSIONS = {name: "1.0" for name in LIBRARIES if name != "onnxruntime-gpu"}
WHOLE = Environment("Linux", "3.11", CPU, 2**34, 2**35, VERSIONS, (), "reachable")


def rows(environment):
    return {row.check: row for row in doctor_rows(environment)}


def test_a_whole_machine_needs_no_remedy():
    result = rows(WHOLE)
    assert all(row.ok is not False and not row.remedy for row in result.values())
    assert result["cores"].value == "2 of 8"
    assert result["cuda"].value == "none"
    assert result["model hub"].ok


def test_what_is_missing_has_a_remedy():
    poor = replace(
        WHOLE, cpu=replace(CPU, instructions=("avx2",)), memory=2**30, disk_free=2**20, hub="not reachable (x)"
    )
    result = rows(replace(poor, versions={"numpy": "2.0"}))
    failing = {check for check, row in result.items() if row.ok is False}
    assert failing == {"memory", "free disk", "instructions", "onnxruntime", "pydantic", "tokenizers"}
    assert all(result[check].remedy for check in failing)
    assert result["torch"].ok is None
    assert result["torch"].remedy == "pip install 'compress-encoders[train]'"
    assert result["model hub"].ok is None


def test_instructions_that_a_system_does_not_tell_are_unknown():
    result = rows(replace(WHOLE, cpu=replace(CPU, instructions=None)))
    assert (result["instructions"].value, result["instructions"].ok) == ("unknown", None)
    assert result["bf16"].value == "unknown"


def test_each_device_has_a_row():
    result = [
        row for row in doctor_rows(replace(WHOLE, gpus=(Gpu("H200", 2**37), Gpu("T4", 2**34)))) if row.check == "cuda"
    ]
    assert [row.value for row in result] == ["H200, 128 GiB", "T4, 16 GiB"]


def test_what_no_extra_brings_is_reported_only_where_it_is():
    assert rows(WHOLE)["triton"].ok
    assert rows(WHOLE)["nvidia-ml-py"].ok
    without = rows(replace(WHOLE, versions={}))
    assert not BY_HAND & set(without)
    assert without["nvidia-ml-py"].remedy == "pip install 'compress-encoders[gpu]'"


def test_two_onnxruntimes_are_one_too_many():
    both = replace(WHOLE, versions={**VERSIONS, "onnxruntime-gpu": "2.0"})
    assert rows(both)["onnxruntime and onnxruntime-gpu"].ok is False
    alone = replace(both, versions={name: version for name, version in both.versions.items() if name != "onnxruntime"})
    assert "onnxruntime" not in rows(alone)
    assert rows(alone)["onnxruntime-gpu"].ok


def test_what_spoils_measurements_is_reported_and_fails_nothing():
    spoilt = CpuState(governor="powersave", frequency=(800.0, 3500.0), turbo=True, power="battery", load=1.9)
    result = rows(replace(WHOLE, cpu=replace(CPU, cores=1), condition=spoilt))
    expected = {"governor", "load", "power", "cores to measure on"}
    assert {check for check, row in result.items() if row.remedy} == expected
    assert all(result[check].ok is None for check in expected)
    assert result["governor"].value == "powersave, 800 to 3500 MHz, turbo on"
    assert result["load"].value == "1.9 on 8 cores"


def test_a_calm_machine_needs_no_remedy():
    result = rows(replace(WHOLE, condition=CpuState(governor="performance", load=0.1, hypervisor="qemu")))
    assert [result[check].value for check in ("governor", "virtual machine")] == ["performance", "qemu"]
    assert result["load"].ok is True
    assert not any(result[check].remedy for check in ("governor", "load", "virtual machine"))


def test_a_load_that_many_cores_do_not_feel():
    many = replace(CPU, cores=64, cores_of_machine=64)
    assert rows(replace(WHOLE, cpu=many, condition=CpuState(load=2.0)))["load"].ok
