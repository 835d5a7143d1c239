"""Metrics: pure functions of predictions and labels, in numpy."""
