import re

from compress.environment import Gpu, describe
from compress.measure import machine_snapshot
from compress.measure.machine_snapshot import MachineSnapshot, snapshot_machine


def test_snapshot_of_this_machine():
    result = snapshot_machine()
    assert result.fingerprint == describe().fingerprint
    assert 1 <= result.cores <= result.cores_of_machine
    assert 0 < result.memory <= result.memory_of_machine
    assert re.fullmatch(r"[\d-]+T[\d:]+\+00:00", result.looked_at)
    assert (result.accelerator, result.driver, result.cuda) == (None, None, None)
    assert "numpy" in result.versions
    assert MachineSnapshot.model_validate_json(result.model_dump_json()) == result


def test_an_accelerator_with_its_driver(monkeypatch):
    from dataclasses import replace

    monkeypatch.setattr(machine_snapshot, "describe", lambda devices: replace(describe(), gpus=(Gpu("H200", 2**37),)))
    monkeypatch.setattr(machine_snapshot, "driver_version", lambda: "550.54")
    monkeypatch.setattr(machine_snapshot, "cuda_version", lambda: "12.4")
    result = snapshot_machine(device=True)
    assert (result.accelerator, result.accelerator_memory) == ("H200", 2**37)
    assert (result.driver, result.cuda) == ("550.54", "12.4")
