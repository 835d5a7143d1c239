"""The comparison as a page, and the same table between two marks of docs/exports.md."""

from pathlib import Path

from benchmarks.formats.formats_results import Entry, FormatsReport
from benchmarks.markdown_page import machine, origin, table
from compress.errors import CompressError
from compress.storage.atomic_write import atomic_write

SESSIONS = {"data": "ms, own lengths", 128: "ms, 128 pieces"}
"""The title of each session, by the length of its inputs."""
COLUMNS = (
    "variant",
    *SESSIONS.values(),
    "loads in s",
    "MB",
    "memory, MB",
    "accuracy",
    "agrees",
    "not measured because",
)
METHOD = (
    "MiniLM's 3-layer student on SST-2, in every format and precision that is built and runs here: the median of a call"
    " at batch 1 with one thread, all in turns; loading in a fresh process with its files in the page cache; graph and"
    " weights on disk; resident memory of the process, with Python and the runtime; accuracy on test, and the share of"
    " its decisions that are PyTorch's, rows one by one. Files for browsers run in ONNX Runtime for Python here."
)
BEGIN, END = "<!-- table of reports/formats -->", "<!-- end of the table -->"


def page(report: FormatsReport) -> str:
    """Return the report as Markdown."""
    return "\n\n".join(["# Formats", origin(report), METHOD, entries_table(report), machine(report)]) + "\n"


def entries_table(report: FormatsReport) -> str:
    """Return the table of all entries."""
    return table(map(table_row, report.entries), COLUMNS, COLUMNS[1:-1])


def table_row(entry: Entry) -> dict[str, str]:
    """Return the cells of one variant."""
    times = {title: _number(entry.milliseconds.get(title), 2) for title in SESSIONS.values()}
    return {
        "variant": entry.variant,
        **times,
        "loads in s": _number(entry.load_seconds, 2),
        "MB": _number(entry.megabytes, 1),
        "memory, MB": _number(entry.memory_megabytes, 0),
        "accuracy": _number(entry.score, 1, 100),
        "agrees": f"{100 * entry.agreement:.1f} %" if entry.agreement is not None else "",
        "not measured because": entry.reason or "",
    }


def docs_block(report: FormatsReport) -> str:
    """Return what docs/exports.md has between its marks."""
    where = report.surroundings.cpu if report.surroundings else "an unknown processor"
    return f"{entries_table(report)}\n\nOn {where}, {report.begun_at[:10]}, by `{report.command}`."


def write_docs(report: FormatsReport, file: Path) -> None:
    """Replace the table between the marks of ``file``."""
    before, begin, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise CompressError(f"{file} has no '{BEGIN}' … '{END}' to write the table between.")
    atomic_write(file, f"{before}{begin}\n\n{docs_block(report)}\n\n{end}{after}")


def _number(value: float | None, digits: int, scale: float = 1.0) -> str:
    return "" if value is None else f"{scale * value:.{digits}f}"
