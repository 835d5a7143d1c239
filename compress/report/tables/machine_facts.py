"""The machine, its settings and the data of a report, as names and text."""

from compress import format_numbers as fmt
from compress.measure.machine_snapshot import MachineSnapshot
from compress.report.report_schema import Report
from compress.report.run_facts import TargetFacts
from compress.tasks import kind_of


def environment_facts(report: Report) -> list[tuple[str, str]]:
    """Names and values of what is known about the machine."""
    machine, seen = report.machine, report.surroundings
    memory = f"{fmt.size(machine.memory)} memory" if machine.memory else None
    facts: dict[str, list[str | None]] = {
        "Machine": [machine.cpu, f"{machine.cores} cores", memory],
        "System": [machine.system],
        "Instructions": [" ".join(machine.instructions or ())],
    }
    if seen is not None:
        facts["System"].append(f"Python {seen.python}")
        facts |= _snapshot_facts(seen)
    facts["Machine"].append(machine.accelerator)
    seeds = {"{} of trainings": report.recipe.get("seed"), "{} of splits": report.data.split_seed}
    facts["Seeds"] = [_known(text, seed) for text, seed in seeds.items()]
    return [(name, ", ".join(filter(None, parts))) for name, parts in facts.items() if any(parts)]


def _snapshot_facts(seen: MachineSnapshot) -> dict[str, list[str | None]]:
    of_cores = f" of {seen.cores_of_machine}" if seen.cores < seen.cores_of_machine else ""
    each = f" with {seen.threads_per_core} threads each" if (seen.threads_per_core or 1) > 1 else ""
    of_memory = f" of {fmt.size(seen.memory_of_machine)}" if seen.memory < (seen.memory_of_machine or 0) else ""
    hypervisor = "a hypervisor" if seen.hypervisor == "unnamed" else _known("a hypervisor ({})", seen.hypervisor)
    cache = f"{fmt.size(seen.last_level_cache)} last-level cache" if seen.last_level_cache else None
    frequency = "{:,.0f} to {:,.0f} MHz".format(*seen.frequency) if seen.frequency else None
    turbo = None if seen.turbo is None else f"turbo {'on' if seen.turbo else 'off'}"
    device_memory = fmt.size(seen.accelerator_memory) if seen.accelerator_memory else None
    driver, cuda = _known("driver {}", seen.driver), _known("CUDA {}", seen.cuda)
    return {
        "Machine": [
            seen.cpu,
            f"{seen.cores}{of_cores} cores{each}",
            cache,
            f"{fmt.size(seen.memory)}{of_memory} memory",
        ],
        "Clock": [_known("governor {}", seen.governor), frequency, turbo, _known("on {}", seen.power)],
        "Shared with": [hypervisor, _known("a container's limit of {:g} cores", seen.core_quota)],
        "Load before measuring": [_known("{:.2f} runnable processes", seen.load)],
        "Accelerator": [seen.accelerator, device_memory, driver, cuda] if seen.accelerator else [],
    }


def _known(text: str, value: object) -> str | None:
    return None if value is None else text.format(value)


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
    test = truncated_of_test(report)
    shares = report.data.truncated or ({} if test is None else {"test": test})
    text = ", ".join(f"{fmt.percent(share)} of {role}" for role, share in shares.items())
    return f"{text}, at {describe_length_limit(report)}" if text else "not recorded"


def truncated_of_test(report: Report) -> float | None:
    """The largest share of truncated rows by the models' scores; old reports have no other."""
    tests = (result.test for result in report.results if result.test)
    return max((test.truncated for test in tests if test.truncated is not None), default=None)


def row_counts(report: Report) -> str:
    """Rows by role: `800 train, 40 select, 100 test`, documents searched on test, rows with contradictory labels."""
    data = report.data
    counts, mixed = (
        ", ".join(f"{count:,} {role}" for role, count in rows.items() if count)
        for rows in (data.rows, data.contradictory)
    )
    documents = f"documents searched on test: {data.documents:,}" if data.documents else ""
    return "; ".join(filter(None, [counts, documents, mixed and f"equal texts with different labels: {mixed}"]))
