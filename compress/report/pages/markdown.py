"""Tables and text as Markdown."""

from __future__ import annotations

from compress.report.tables.table_type import Table


def markdown_table(table: Table, *, escape: bool = True) -> str:
    """Return a table as Markdown, with the winner's row in bold.

    Args:
        table: what to show.
        escape: False if its cells are Markdown already.
    """
    lines = [table.columns, tuple("---:" if column in table.numeric else "---" for column in table.columns)]
    for index, row in enumerate(table.rows):
        strong = "**" if index == table.winner else ""
        cells = (markdown_cell(row[column]) if escape else row[column] for column in table.columns)
        lines.append(tuple(f"{strong}{cell}{strong}" for cell in cells))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def markdown_cell(text: str) -> str:
    """Escape text so that it stays within its table cell and is not read as markup."""
    for sign in ("\\", "|", "*", "_", "`", "<"):
        text = text.replace(sign, "\\" + sign)
    return " ".join(text.split())
