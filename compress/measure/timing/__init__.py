"""Latency and throughput: worker processes that take turns."""
