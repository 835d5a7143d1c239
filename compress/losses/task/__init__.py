"""The tasks' own losses, one a file."""
