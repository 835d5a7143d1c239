"""Parts of all report pages: tables in Markdown, the command, and the machine."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from benchmarks.report_store import Report
from compress.console import duration
from compress.tables import Table, markdown_table


def origin(report: Report) -> str:
    """Return what made the report, when, and whether the run finished."""
    by = f"Made by {report.made_by}" + (f" with `{report.command}`" if report.command else "")
    took = f"took {duration(report.seconds)}." if report.seconds is not None else "**did not finish.**"
    text = f"{by}; begun {report.begun_at}, {took}"
    if not report.trial:
        return text
    return f"{text}\n\n**A trial of the benchmark: too short for meaningful figures.**"


def table(rows: Iterable[Mapping[str, str | None]], columns: Sequence[str], numbers: Collection[str] = ()) -> str:
    """Return a table of ``columns``; those in ``numbers`` are aligned to the right."""
    cells = tuple({column: cell(row[column]) for column in columns} for row in rows)
    return markdown_table(Table(tuple(columns), cells, frozenset(numbers)), escape=False)


def cell(text: str | None) -> str:
    """Return the text of a cell."""
    return "-" if not text else " ".join(text.split()).replace("|", "\\|")


def machine(report: Report) -> str:
    """Return what it ran on, without the host name."""
    snapshot = report.surroundings
    if snapshot is None:
        return "## Machine\n\nNot recorded."
    facts = {
        "processor": snapshot.cpu,
        "instructions": ", ".join(snapshot.instructions or ()) or None,
        "cores": f"{snapshot.cores} of {snapshot.cores_of_machine}",
        "governor": snapshot.governor,
        "hypervisor": snapshot.hypervisor,
        "load before": None if snapshot.load is None else f"{snapshot.load:.2f}",
        "load after": None if report.load_after is None else f"{report.load_after:.2f}",
        "system": snapshot.system,
        "Python": snapshot.python,
        "libraries": ", ".join(f"{name} {version}" for name, version in snapshot.versions.items()),
    }
    return "## Machine\n\n" + "\n".join(f"- {name}: {cell(value or 'unknown')}" for name, value in facts.items())
