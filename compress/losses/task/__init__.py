"""Losses on true labels, one per file."""
