"""The checks of ``compress doctor``: properties of this machine, whether they suffice, and what to type if not."""

from __future__ import annotations

from dataclasses import dataclass

from compress.environment import Environment
from compress.environment.cpu_state import CpuState
from compress.environment.libraries import BY_HAND, LIBRARIES

MEMORY_WANTED = 4 * 2**30
DISK_WANTED = 5 * 2**30
BUSY = 0.5
"""Load above which other work disturbs a timing; on machines of many cores, one part in ten of them."""


@dataclass(frozen=True)
class Row:
    """One check."""

    check: str
    value: str
    ok: bool | None
    """None: information only, such as a library that only some recipes need."""
    remedy: str = ""


def doctor_rows(machine: Environment) -> list[Row]:
    """Check a machine, described with its devices and hub."""
    checks = (_machine, _cpu, _condition, _devices, _libraries, _hub)
    return [row for check in checks for row in check(machine)]


def _machine(machine: Environment) -> list[Row]:
    return [
        Row("system", machine.system, None),
        Row("python", machine.python, True),
        _size("memory", machine.memory, MEMORY_WANTED, "lower batch_size; training a base-size model takes 4 GiB"),
        _size("free disk", machine.disk_free, DISK_WANTED, "free space; `compress clean` removes what no run names"),
        Row("machine", machine.fingerprint, None),
    ]


def _size(check: str, value: int, wanted: int, remedy: str) -> Row:
    ok = value >= wanted
    return Row(check, f"{value / 2**30:.1f} GiB", ok, "" if ok else remedy)


def _cpu(machine: Environment) -> list[Row]:
    cpu = machine.cpu
    named = "unknown" if cpu.instructions is None else ", ".join(cpu.instructions) or "none of those that matter"
    slow_int8 = "no int8 dot products: INT8 may be no faster than fp32 here, and may saturate; trust the measurement"
    return [
        Row("processor", cpu.model, None),
        Row("cores", f"{cpu.cores} of {cpu.cores_of_machine}", None),
        Row("instructions", named, cpu.has_vnni, slow_int8 if cpu.has_vnni is False else ""),
        Row("bf16", {True: "in hardware", False: "no", None: "unknown"}[cpu.has_bf16], None),
    ]


def _condition(machine: Environment) -> list[Row]:
    """Return the checks of what disturbs timings; none of them is a failure."""
    seen = machine.condition
    virtual = Row("virtual machine", seen.hypervisor or "none detected", None)
    rows = [_frequency(seen), _load(seen, machine.cpu.cores_of_machine), virtual]
    if seen.power == "battery":
        rows.append(Row("power", "battery", None, "batteries slow the processor: plug it in to measure"))
    if machine.cpu.cores == 1:
        rows.append(Row("cores to measure on", "1", None, "the session shares it with what it times; better two"))
    return rows


def _frequency(seen: CpuState) -> Row:
    """Check the governor: one that saves power raises the frequency late, so short calls are timed at a low one."""
    span = f", {seen.frequency[0]:.0f} to {seen.frequency[1]:.0f} MHz" if seen.frequency else ""
    turbo = {True: ", turbo on", False: ", turbo off", None: ""}[seen.turbo]
    saving = "powersave" in (seen.governor or "")
    remedy = "timings may swing with the frequency; to measure: sudo cpupower frequency-set -g performance"
    return Row("governor", f"{seen.governor or 'unknown'}{span}{turbo}", None, remedy if saving else "")


def _load(seen: CpuState, cores: int) -> Row:
    if seen.load is None:
        return Row("load", "unknown", None)
    busy = seen.load > max(BUSY, cores / 10)
    remedy = "other work disturbs timings: wait for it, or end it, before measuring" if busy else ""
    return Row("load", f"{seen.load:.1f} on {cores} cores", None if busy else True, remedy)


def _devices(machine: Environment) -> list[Row]:
    if not machine.gpus:
        return [Row("cuda", "none", None)]
    return [Row("cuda", f"{gpu.name}, {gpu.memory / 2**30:.0f} GiB", True) for gpu in machine.gpus]


def _libraries(machine: Environment) -> list[Row]:
    rows = []
    replaced = {"onnxruntime"} if "onnxruntime-gpu" in machine.versions else set()
    for name, extra in LIBRARIES.items():
        wanted = f"pip install 'compress-encoders[{extra}]'" if extra else "pip install compress-encoders"
        if name in machine.versions:
            rows.append(Row(name, machine.versions[name], True))
        elif name not in BY_HAND | replaced:
            # Without an optional library some commands are missing; without one of the base install nothing works.
            rows.append(Row(name, "not installed", None if extra else False, wanted))
    if replaced & machine.versions.keys():  # both write into one module, and the one installed last is used
        remedy = "pip uninstall onnxruntime onnxruntime-gpu, then install the one you want"
        rows.append(Row("onnxruntime and onnxruntime-gpu", "both installed", False, remedy))
    return rows


def _hub(machine: Environment) -> list[Row]:
    reachable = machine.hub == "reachable"
    remedy = "" if reachable else "cards of hub models need it; or use a local folder: teacher: path/to/folder"
    return [Row("model hub", machine.hub or "not checked", True if reachable else None, remedy)]
