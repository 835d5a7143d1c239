import re

from compress.environment import Gpu, describe
from compress.measure.interference import machine_snapshot
from compress.measure.interference.machine_snapshot import MachineSnapshot, snapshot_machine


def test_snapshot_of_this_machine():
    found = snapshot_machine()
    assert found.fingerprint == describe().fingerprint
    assert 1 <= found.cores <= found.cores_of_machine
    assert 0 < found.memory <= found.memory_of_machine
    assert re.fullmatch(r"[\d-]+T[\d:]+\+00:00", found.looked_at)
    assert (found.accelerator, found.driver, found.cuda) == (None, None, None)
    assert "numpy" in found.versions
    assert MachineSnapshot.model_validate_json(found.model_dump_json()) == found


def test_an_accelerator_with_its_driver(monkeypatch):
    from dataclasses import replace

    monkeypatch.setattr(machine_snapshot, "describe", lambda devices: replace(describe(), gpus=(Gpu("H200", 2**37),)))
    monkeypatch.setattr(machine_snapshot, "driver_version", lambda: "550.54")
    monkeypatch.setattr(machine_snapshot, "cuda_version", lambda: "12.4")
    found = snapshot_machine(device=True)
    assert (found.accelerator, found.accelerator_memory) == ("H200", 2**37)
    assert (found.driver, found.cuda) == ("550.54", "12.4")
