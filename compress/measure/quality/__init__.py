"""Scores with confidence intervals, paired tests, and where a model is weak."""
