"""Checks of the timing harness against other tools and against itself.

`python -m benchmarks.harness` prints the table and writes reports/harness/; benchmarks/README.md describes
each row and how the tools were made comparable.
"""
