"""Raw rows from files, hub data sets and the quickstart data, and their parsing into canonical rows."""
