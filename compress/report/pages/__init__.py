"""The report's pages: Markdown and HTML."""
