"""The report as a page: the table first, then every turn and session behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.harness.rows import HarnessReport, Pairing, Row, Turn
from compress.console import duration


def page(report: HarnessReport) -> str:
    """The whole page in Markdown."""
    blocks = ["# Is the measuring harness right?", _head(report), _table(report.rows), _legend(), _machine(report)]
    blocks += [_details(row) for row in report.rows if row.turns or row.sessions]
    return "\n\n".join(blocks) + "\n"


def _head(report: HarnessReport) -> str:
    lines = [
        f"Made by {report.made_by} with `{report.command}`; begun {report.begun_at}, "
        + (f"took {duration(report.seconds)}." if report.seconds is not None else "**did not come to its end.**")
    ]
    if report.trial:
        lines.append("**A trial of the check itself: far too short for its verdicts to mean anything.**")
    lines.append(
        f"Model: {report.model or 'not made'}. Batch {report.batch}, {report.length} word pieces, "
        f"{report.threads} thread{'s' if report.threads > 1 else ''}."
    )
    return "\n\n".join(lines)


def _table(rows: Iterable[Row]) -> str:
    lines = ["| what | goal | found | passed |", "| --- | --- | --- | --- |"]
    lines += [f"| {_cell(row.what)} | {_cell(row.goal)} | {_cell(row.found)} | {_verdict(row)} |" for row in rows]
    return "\n".join(lines)


def _verdict(row: Row) -> str:
    if row.passed is None:
        return f"not decided: {_cell(row.reason)}"
    return "yes" if row.passed else "**no**"


def _cell(text: str | None) -> str:
    return "-" if not text else " ".join(text.split()).replace("|", "\\|")


def _legend() -> str:
    return (
        "Beside other tools `found` tells the medians over all turns, and the median over turns of the harness's time "
        "over the tool's in the same turn. Rows that fail stay. How the tools were made comparable, and what each "
        "includes in its times, is told in benchmarks/README.md."
    )


def _machine(report: HarnessReport) -> str:
    machine = report.surroundings
    if machine is None:
        return "## Machine\n\nNothing was written down about it."
    facts = {
        "processor": machine.cpu,
        "instructions": ", ".join(machine.instructions or ()) or None,
        "cores": f"{machine.cores} of {machine.cores_of_machine}",
        "governor": machine.governor,
        "hypervisor": machine.hypervisor,
        "load before": None if machine.load is None else f"{machine.load:.2f}",
        "load after": None if report.load_after is None else f"{report.load_after:.2f}",
        "system": machine.system,
        "Python": machine.python,
        "libraries": ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
    }
    return "## Machine\n\n" + "\n".join(f"- {name}: {_cell(value or 'not told')}" for name, value in facts.items())


def _details(row: Row) -> str:
    told = [f"`{value}`" for value in row.setup.values()]
    table = _turns(row.turns) if row.turns else _sessions(row.sessions)
    return "\n\n".join([f"<details><summary>{_cell(row.what)}</summary>", *told, table, "</details>"])


def _turns(turns: Sequence[Turn]) -> str:
    lines = ["| turn | harness, ms | tool, ms | ratio |", "| ---: | ---: | ---: | ---: |"]
    lines += [
        f"| {number} | {turn.ours:.3f} | {turn.theirs:.3f} | {turn.ratio:.3f} |"
        for number, turn in enumerate(turns, start=1)
    ]
    return "\n".join(lines)


def _sessions(sessions: Sequence[Pairing]) -> str:
    lines = ["| session | p50, ms | ratio | others' load | took | told |", "| --- | --- | --- | ---: | ---: | --- |"]
    for one in sessions:
        medians = ", ".join(f"{key} {value:.3f}" for key, value in one.p50.items()) or "-"
        ratio = one.ratio
        shown = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "-"
        load = "-" if one.other_load is None else f"{one.other_load:.0%}"
        told = _cell("; ".join(one.reasons))
        lines.append(f"| {one.case} | {medians} | {shown} | {load} | {one.seconds:.0f} s | {told} |")
    return "\n".join(lines)
