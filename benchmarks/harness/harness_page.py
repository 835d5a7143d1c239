"""The report as a page: the table first, then every turn and session."""

from collections.abc import Sequence

from benchmarks.harness.harness_results import HarnessReport, Pairing, Row, Turn
from benchmarks.markdown_page import cell, machine, origin, table

COLUMNS = ("what", "goal", "result", "passed")
TURN = ("turn", "harness, ms", "tool, ms", "ratio")
SESSION = ("session", "p50, ms", "ratio", "others' load", "took", "messages")


def page(report: HarnessReport) -> str:
    """Return the page in Markdown."""
    blocks = [
        "# Is the measuring harness right?",
        _head(report),
        table(map(cells, report.rows), COLUMNS),
        _legend(),
        machine(report),
    ]
    blocks += [_details(row) for row in report.rows if row.turns or row.sessions]
    return "\n\n".join(blocks) + "\n"


def _head(report: HarnessReport) -> str:
    return (
        f"{origin(report)}\n\n"
        f"Model: {report.model or 'none'}. Batch {report.batch}, {report.length} tokens, "
        f"{report.threads} thread{'s' if report.threads > 1 else ''}."
    )


def cells(row: Row) -> dict[str, str | None]:
    """A claim's line."""
    passed = {True: "yes", False: "**no**", None: f"not decided: {row.reason or '-'}"}[row.passed]
    return dict(zip(COLUMNS, (row.what, row.goal, row.result, passed), strict=True))


def _legend() -> str:
    return (
        "For other tools `result` gives the medians over all turns, and the median over turns of the harness's time "
        "over the tool's in the same turn. Rows that fail stay. How the tools were made comparable, and what each "
        "includes in its times, is described in benchmarks/README.md."
    )


def _details(row: Row) -> str:
    setup = [f"`{value}`" for value in row.setup.values()]
    results = _turns(row.turns) if row.turns else _sessions(row.sessions)
    return "\n\n".join([f"<details><summary>{cell(row.what)}</summary>", *setup, results, "</details>"])


def _turns(turns: Sequence[Turn]) -> str:
    figures = ((turn.ours, turn.theirs, turn.ratio) for turn in turns)
    lines = [(str(number), *(f"{value:.3f}" for value in three)) for number, three in enumerate(figures, start=1)]
    return table([dict(zip(TURN, line, strict=True)) for line in lines], TURN, TURN)


def _sessions(sessions: Sequence[Pairing]) -> str:
    return table(map(_session, sessions), SESSION, SESSION[3:5])


def _session(one: Pairing) -> dict[str, str | None]:
    medians = ", ".join(f"{key} {value:.3f}" for key, value in one.p50.items())
    ratio = f"{one.ratio.value:.3f} [{one.ratio.low:.3f}, {one.ratio.high:.3f}]" if one.ratio else None
    load = None if one.other_load is None else f"{one.other_load:.0%}"
    values = (one.case, medians, ratio, load, f"{one.seconds:.0f} s", "; ".join(one.reasons))
    return dict(zip(SESSION, values, strict=True))
