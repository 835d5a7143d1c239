"""From the values of raw rows to the fields of canonical rows."""
