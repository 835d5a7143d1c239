"""Checks made before the first step runs."""
