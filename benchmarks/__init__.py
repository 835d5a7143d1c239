"""Measurements that are published under reports/ and never run as tests."""
