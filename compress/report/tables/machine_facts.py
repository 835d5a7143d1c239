"""The machine, its settings and the data of a report, as names and text."""

from __future__ import annotations

from compress.measure.interference.machine_snapshot import MachineSnapshot
from compress.report import format_numbers as fmt
from compress.report.report_schema import Report, TargetFacts
from compress.tasks import kind_of


def environment_facts(report: Report) -> list[tuple[str, str]]:
    """Names and values of what is known about the machine."""
    machine, seen = report.machine, report.surroundings
    facts = [
        ("Machine", _join(machine.name, _cores(report), _cache(seen), _memory(report), machine.accelerator)),
        ("System", _join(machine.system, f"Python {seen.python}" if seen else None)),
        ("Instructions", " ".join(machine.instructions)),
    ]
    if seen:
        facts += [
            ("Clock", _clock(seen)),
            ("Shared with", _shared(seen)),
            ("Load before measuring", f"{seen.load:.2f} runnable processes" if seen.load is not None else ""),
            ("Accelerator", _accelerator(seen)),
        ]
    return [(name, value) for name, value in facts if value]


def describe_target(target: TargetFacts) -> str:
    """A target in words: `1 thread, batch 1, lengths of the data`, with its device unless the title starts with it."""
    threads = f"{target.threads} thread{'' if target.threads == 1 else 's'}"
    length = "lengths of the data" if target.length == "data" else f"{target.length} word pieces"
    text = f"{threads}, batch {target.batch}, {length}"
    return text if target.title.startswith(target.device) else f"{target.device}, {text}"


def describe_length_limit(report: Report) -> str:
    """How much of a text the model reads: `128 word pieces`, `16 windows of 128 word pieces`."""
    task = report.task
    pieces = f"{task.max_length} word pieces"
    return f"{task.max_windows} windows of {pieces}" if kind_of(task).in_windows(task) else pieces


def truncation(report: Report) -> str:
    """The share of truncated rows by role: `0.0 % of train, 1.2 % of test, at 128 word pieces`."""
    shares = report.data.truncated or _truncated_test(report)
    text = ", ".join(f"{fmt.percent(share)} of {role}" for role, share in shares.items())
    return f"{text}, at {describe_length_limit(report)}" if text else "not recorded"


def row_counts(report: Report) -> str:
    """Rows by role: `800 train, 40 select, 100 test`, and the number of documents that are searched on test."""
    rows = ", ".join(f"{count:,} {role}" for role, count in report.data.rows.items())
    documents = report.data.documents
    return f"{rows}; documents searched on test: {documents:,}" if documents else rows


def _truncated_test(report: Report) -> dict[str, float]:
    """The share of test by the scores of the rows, for reports from before shares were recorded by role."""
    tests = [result.test for row in report.rows for result in row.targets.values() if result.test]
    shares = [test.truncated for test in tests if test.truncated is not None]
    return {"test": max(shares)} if shares else {}


def _cores(report: Report) -> str:
    seen, cores = report.surroundings, report.machine.cores
    if seen is None:
        return f"{cores} cores"
    text = f"{seen.cores} of {seen.cores_of_machine} cores" if seen.cores < seen.cores_of_machine else f"{cores} cores"
    return text + (f" with {seen.threads_per_core} threads each" if (seen.threads_per_core or 1) > 1 else "")


def _cache(seen: MachineSnapshot | None) -> str | None:
    return f"{fmt.size(seen.last_level_cache)} last-level cache" if seen and seen.last_level_cache else None


def _memory(report: Report) -> str | None:
    seen, memory = report.surroundings, report.machine.memory
    if seen is None:
        return f"{fmt.size(memory)} memory" if memory else None
    if seen.memory_of_machine and seen.memory < seen.memory_of_machine:
        return f"{fmt.size(seen.memory)} of {fmt.size(seen.memory_of_machine)} memory"
    return f"{fmt.size(seen.memory)} memory"


def _clock(seen: MachineSnapshot) -> str:
    """The frequency range of the processor and its governor."""
    turbo = None if seen.turbo is None else f"turbo {'on' if seen.turbo else 'off'}"
    span = f"{seen.frequency[0]:,.0f} to {seen.frequency[1]:,.0f} MHz" if seen.frequency else None
    governor = f"governor {seen.governor}" if seen.governor else None
    return _join(governor, span, turbo, f"on {seen.power}" if seen.power else None)


def _shared(seen: MachineSnapshot) -> str:
    hypervisor = "a hypervisor" if seen.hypervisor == "unnamed" else f"a hypervisor ({seen.hypervisor})"
    quota = f"a container's limit of {seen.core_quota:g} cores" if seen.core_quota is not None else None
    return _join(hypervisor if seen.hypervisor else None, quota)


def _accelerator(seen: MachineSnapshot) -> str:
    if seen.accelerator is None:
        return ""
    memory = fmt.size(seen.accelerator_memory) if seen.accelerator_memory else None
    driver = f"driver {seen.driver}" if seen.driver else None
    return _join(seen.accelerator, memory, driver, f"CUDA {seen.cuda}" if seen.cuda else None)


def _join(*parts: str | None) -> str:
    return ", ".join(filter(None, parts))
