"""The report's tables: rows of text for the terminal, Markdown and HTML."""
