"""The checks of ``compress doctor``: properties of this machine, whether they suffice, and what to type if not."""

from dataclasses import dataclass

from compress.environment import Environment
from compress.environment.cpu import CpuState
from compress.environment.libraries import BY_HAND, LIBRARIES

MEMORY_WANTED = 4 * 2**30
DISK_WANTED = 5 * 2**30
BUSY = 0.5
"""Load above which other work disturbs a timing; on machines of many cores, one part in ten of them."""


@dataclass(frozen=True)
class DoctorRow:
    """One check."""

    check: str
    value: str
    ok: bool | None
    """None: information only, such as a library that only some recipes need."""
    remedy: str = ""


def doctor_rows(machine: Environment) -> list[DoctorRow]:
    """Check a machine, described with its devices and hub."""
    checks = (_machine, _cpu, _condition, _devices, _libraries, _hub)
    return [row for check in checks for row in check(machine)]


def _machine(machine: Environment) -> list[DoctorRow]:
    return [
        DoctorRow("system", machine.system, None),
        DoctorRow("python", machine.python, True),
        _size("memory", machine.memory, MEMORY_WANTED, "lower batch_size; training a base-size model takes 4 GiB"),
        _size("free disk", machine.disk_free, DISK_WANTED, "free space; `compress clean` removes what no run names"),
        DoctorRow("machine", machine.fingerprint, None),
    ]


def _size(check: str, value: int, wanted: int, remedy: str) -> DoctorRow:
    ok = value >= wanted
    return DoctorRow(check, f"{value / 2**30:.1f} GiB", ok, "" if ok else remedy)


def _cpu(machine: Environment) -> list[DoctorRow]:
    cpu = machine.cpu
    named = "unknown" if cpu.instructions is None else ", ".join(cpu.instructions) or "none of those that matter"
    slow_int8 = "no int8 dot products: INT8 may be no faster than fp32 here, and may saturate; trust the measurement"
    return [
        DoctorRow("processor", cpu.model, None),
        DoctorRow("cores", f"{cpu.cores} of {cpu.cores_of_machine}", None),
        DoctorRow("instructions", named, cpu.has_vnni, slow_int8 if cpu.has_vnni is False else ""),
        DoctorRow("bf16", {True: "in hardware", False: "no", None: "unknown"}[cpu.has_bf16], None),
    ]


def _condition(machine: Environment) -> list[DoctorRow]:
    """Return the checks of what disturbs timings; none of them is a failure."""
    seen = machine.condition
    virtual = DoctorRow("virtual machine", seen.hypervisor or "none detected", None)
    rows = [_frequency(seen), _load(seen, machine.cpu.cores_of_machine), virtual]
    if seen.power == "battery":
        rows.append(DoctorRow("power", "battery", None, "batteries slow the processor: plug it in to measure"))
    if machine.cpu.cores == 1:
        rows.append(DoctorRow("cores to measure on", "1", None, "the session shares it with what it times; better two"))
    return rows


def _frequency(seen: CpuState) -> DoctorRow:
    """Check the governor: one that saves power raises the frequency late, so short calls are timed at a low one."""
    span = f", {seen.frequency[0]:.0f} to {seen.frequency[1]:.0f} MHz" if seen.frequency else ""
    turbo = {True: ", turbo on", False: ", turbo off", None: ""}[seen.turbo]
    saving = "powersave" in (seen.governor or "")
    remedy = "timings may swing with the frequency; to measure: sudo cpupower frequency-set -g performance"
    return DoctorRow("governor", f"{seen.governor or 'unknown'}{span}{turbo}", None, remedy if saving else "")


def _load(seen: CpuState, cores: int) -> DoctorRow:
    if seen.load is None:
        return DoctorRow("load", "unknown", None)
    busy = seen.load > max(BUSY, cores / 10)
    remedy = "other work disturbs timings: wait for it, or end it, before measuring" if busy else ""
    return DoctorRow("load", f"{seen.load:.1f} on {cores} cores", None if busy else True, remedy)


def _devices(machine: Environment) -> list[DoctorRow]:
    if not machine.gpus:
        return [DoctorRow("cuda", "none", None)]
    return [DoctorRow("cuda", f"{gpu.name}, {gpu.memory / 2**30:.0f} GiB", True) for gpu in machine.gpus]


def _libraries(machine: Environment) -> list[DoctorRow]:
    rows = []
    replaced = {"onnxruntime"} if "onnxruntime-gpu" in machine.versions else set()
    for name, extra in LIBRARIES.items():
        wanted = f"pip install 'compress-encoders[{extra}]'" if extra else "pip install compress-encoders"
        if name in machine.versions:
            rows.append(DoctorRow(name, machine.versions[name], True))
        elif name not in BY_HAND | replaced:
            # Without an optional library some commands are missing; without one of the base install nothing works.
            rows.append(DoctorRow(name, "not installed", None if extra else False, wanted))
    if replaced & machine.versions.keys():  # both write into one module, and the one installed last is used
        remedy = "pip uninstall onnxruntime onnxruntime-gpu, then install the one you want"
        rows.append(DoctorRow("onnxruntime and onnxruntime-gpu", "both installed", False, remedy))
    return rows


def _hub(machine: Environment) -> list[DoctorRow]:
    reachable = machine.hub == "reachable"
    remedy = "" if reachable else "cards of hub models need it; or use a local folder: teacher: path/to/folder"
    return [DoctorRow("model hub", machine.hub or "not checked", True if reachable else None, remedy)]
