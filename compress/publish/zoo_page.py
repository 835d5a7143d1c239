"""index.html of a place: its published models in one page, which works offline and can be searched and filtered."""

from __future__ import annotations

from typing import Any

from compress import format_numbers as fmt
from compress.publish.records import UNVERSIONED, Index, Record
from compress.report.pages.render import page_environment, page_script, script_hash

PAGE_FILE = "index.html"


def zoo_page(index: Index) -> str:
    """Return the page: every version that was not withdrawn, the newest of each name marked."""
    newest = {record.name: record.address for record in index.records if record.state == "published"}
    shown = [each for each in reversed(index.records) if each.state == "published"]
    rows = [_row(record, newest[record.name] == record.address) for record in shown]
    script = page_script("table_filter.js")
    return (
        page_environment(escape=True)
        .get_template("zoo.html.j2")
        .render(rows=rows, tasks=sorted({row["task"] for row in rows}), script=script, script_hash=script_hash(script))
    )


def _row(record: Record, is_newest: bool) -> dict[str, Any]:
    main = record.main
    score, p50, size = (main.score, main.p50_ms, main.bytes) if main else (None, None, None)
    return {
        "name": record.name,
        "version": "" if record.version == UNVERSIONED else record.version,
        "is_newest": is_newest,
        "page": f"{record.folder}/report/report.html",
        "task": record.task or "–",
        "kind": record.kind.replace("_", " "),
        "variant": main.variant if main else "–",
        "more": [each.variant for each in record.variants if each.path != "."],
        "metric": fmt.metric(record.metric) if record.metric else "",
        "score": fmt.score(score, record.larger_is_better),
        "score_value": score,
        "p50": fmt.milliseconds(p50),
        "p50_value": p50,
        "size": fmt.size(size),
        "size_value": size,
        "cpu": record.cpu or "",
        "date": f"{record.published:%Y-%m-%d}",
        "signed": record.signed,
    }
