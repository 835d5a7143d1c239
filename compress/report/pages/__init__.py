"""The report's pages: Markdown, HTML and the index of published reports."""
