"""Parts of all report pages: tables in Markdown, the command, and the machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from benchmarks.report_store import Report
from compress.console import duration


def made(report: Report) -> str:
    """By what, when, and whether it came to its end."""
    by = f"Made by {report.made_by}" + (f" with `{report.command}`" if report.command else "")
    took = f"took {duration(report.seconds)}." if report.seconds is not None else "**did not come to its end.**"
    told = f"{by}; begun {report.begun_at}, {took}"
    if not report.trial:
        return told
    return f"{told}\n\n**A trial of the benchmark itself: far too short for its figures to mean anything.**"


def table(rows: Iterable[Mapping[str, str | None]], columns: Sequence[str], numbers: Collection[str] = ()) -> str:
    """Rows with a cell for each of the columns, of which ``numbers`` stand to the right."""
    lines = [f"| {' | '.join(columns)} |"]
    lines.append(f"| {' | '.join('---:' if column in numbers else '---' for column in columns)} |")
    lines += [f"| {' | '.join(cell(row[column]) for column in columns)} |" for row in rows]
    return "\n".join(lines)


def cell(text: str | None) -> str:
    """What stands in a cell."""
    return "-" if not text else " ".join(text.split()).replace("|", "\\|")


def machine(report: Report) -> str:
    """What it ran on: nothing that names the machine."""
    found = report.surroundings
    if found is None:
        return "## Machine\n\nNothing was written down about it."
    facts = {
        "processor": found.cpu,
        "instructions": ", ".join(found.instructions or ()) or None,
        "cores": f"{found.cores} of {found.cores_of_machine}",
        "governor": found.governor,
        "hypervisor": found.hypervisor,
        "load before": None if found.load is None else f"{found.load:.2f}",
        "load after": None if report.load_after is None else f"{report.load_after:.2f}",
        "system": found.system,
        "Python": found.python,
        "libraries": ", ".join(f"{name} {version}" for name, version in found.versions.items()),
    }
    return "## Machine\n\n" + "\n".join(f"- {name}: {cell(value or 'not told')}" for name, value in facts.items())
