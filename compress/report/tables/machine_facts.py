"""The machine around the figures, as names and words: what it is, how it was set and what else it did."""

from __future__ import annotations

from compress.measure.interference.machine_snapshot import MachineSnapshot
from compress.report.format_numbers import format_percent, format_size
from compress.report.report_schema import Report, TargetFacts
from compress.tasks import kind_of


def environment_facts(report: Report) -> list[tuple[str, str]]:
    """Names and words for the end of a page; what the system did not tell is left out."""
    machine, seen = report.machine, report.surroundings
    facts = [
        ("Machine", _listed(machine.name, _cores(report), _cache(seen), _memory(report), machine.accelerator)),
        ("System", _listed(machine.system, f"Python {seen.python}" if seen else None)),
        ("Instructions", " ".join(machine.instructions)),
    ]
    if seen:
        facts += [
            ("Clock", _clock(seen)),
            ("Shared with", _shared(seen)),
            ("Load before measuring", f"{seen.load:.2f} processes wanted to run" if seen.load is not None else ""),
            ("Accelerator", _accelerator(seen)),
        ]
    return [(name, said) for name, said in facts if said]


def describe_target(target: TargetFacts) -> str:
    """A target in words: `1 thread, batch 1, lengths of the data`, with its device unless the title starts with it."""
    threads = f"{target.threads} thread{'' if target.threads == 1 else 's'}"
    length = "lengths of the data" if target.length == "data" else f"{target.length} word pieces"
    text = f"{threads}, batch {target.batch}, {length}"
    return text if target.title.startswith(target.device) else f"{target.device}, {text}"


def describe_length_limit(report: Report) -> str:
    """How much of a text the model may see: `128 word pieces`, `16 windows of 128 word pieces`."""
    task = report.task
    pieces = f"{task.max_length} word pieces"
    return f"{task.max_windows} windows of {pieces}" if kind_of(task).in_windows(task) else pieces


def truncation(report: Report) -> str:
    """The share of rows that were cut, by role, told whatever it is: `0.0 % of train, 1.2 % of test, at 128 …`."""
    shares = report.data.truncated or _of_test(report)
    told = ", ".join(f"{format_percent(share)} of {role}" for role, share in shares.items())
    return f"{told}, at {describe_length_limit(report)}" if told else "not told"


def row_counts(report: Report) -> str:
    """Rows by role, and what they search: `800 train, 40 select, 100 test; documents searched on test: 5,000`."""
    told = ", ".join(f"{count:,} {role}" for role, count in report.data.rows.items())
    documents = report.data.documents
    return f"{told}; documents searched on test: {documents:,}" if documents else told


def _of_test(report: Report) -> dict[str, float]:
    """The share of test, as the rows tell it: all there is in reports of before it was noted by role."""
    tests = [place.test for row in report.rows for place in row.targets.values() if place.test]
    found = [test.truncated for test in tests if test.truncated is not None]
    return {"test": max(found)} if found else {}


def _cores(report: Report) -> str:
    seen, cores = report.surroundings, report.machine.cores
    if seen is None:
        return f"{cores} cores"
    told = f"{seen.cores} of {seen.cores_of_machine} cores" if seen.cores < seen.cores_of_machine else f"{cores} cores"
    return told + (f" with {seen.threads_per_core} threads each" if (seen.threads_per_core or 1) > 1 else "")


def _cache(seen: MachineSnapshot | None) -> str | None:
    return f"{format_size(seen.last_level_cache)} last-level cache" if seen and seen.last_level_cache else None


def _memory(report: Report) -> str | None:
    seen, memory = report.surroundings, report.machine.memory
    if seen is None:
        return f"{format_size(memory)} memory" if memory else None
    if seen.memory_of_machine and seen.memory < seen.memory_of_machine:
        return f"{format_size(seen.memory)} of {format_size(seen.memory_of_machine)} memory"
    return f"{format_size(seen.memory)} memory"


def _clock(seen: MachineSnapshot) -> str:
    """How fast the processor may run, and who decides."""
    turbo = None if seen.turbo is None else f"turbo {'on' if seen.turbo else 'off'}"
    span = f"{seen.frequency[0]:,.0f} to {seen.frequency[1]:,.0f} MHz" if seen.frequency else None
    governor = f"governor {seen.governor}" if seen.governor else None
    return _listed(governor, span, turbo, f"on {seen.power}" if seen.power else None)


def _shared(seen: MachineSnapshot) -> str:
    hypervisor = "a hypervisor" if seen.hypervisor == "unnamed" else f"a hypervisor ({seen.hypervisor})"
    quota = f"a container's limit of {seen.core_quota:g} cores" if seen.core_quota is not None else None
    return _listed(hypervisor if seen.hypervisor else None, quota)


def _accelerator(seen: MachineSnapshot) -> str:
    if seen.accelerator is None:
        return ""
    memory = format_size(seen.accelerator_memory) if seen.accelerator_memory else None
    driver = f"driver {seen.driver}" if seen.driver else None
    return _listed(seen.accelerator, memory, driver, f"CUDA {seen.cuda}" if seen.cuda else None)


def _listed(*parts: str | None) -> str:
    return ", ".join(filter(None, parts))
