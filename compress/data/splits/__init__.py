"""Rows by role (train, select, test), checked and stored on disk; samples and slices of them."""
