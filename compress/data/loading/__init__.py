"""Raw rows from files, hub sets and the quickstart data."""
