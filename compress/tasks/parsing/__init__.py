"""From the values of raw rows to what a task kind understands."""
