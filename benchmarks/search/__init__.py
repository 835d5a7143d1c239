"""`python -m benchmarks.search`: a search beside other ways to find a small model."""
