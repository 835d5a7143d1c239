"""Data: from files, hub sets and what is installed to checked rows by role, and from rows to batches."""
