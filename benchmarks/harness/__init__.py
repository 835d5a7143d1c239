"""Is the measuring harness right? It is held against other people's tools and against itself.

`python -m benchmarks.harness` prints the table and writes reports/harness/; README.md beside this folder tells what
each row means and how the tools were made comparable.
"""
