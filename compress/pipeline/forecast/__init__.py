"""Estimated time, memory and disk of a plan."""
