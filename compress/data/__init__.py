"""Data: from files, hub data sets and the quickstart data to checked rows by role, and from rows to batches."""
