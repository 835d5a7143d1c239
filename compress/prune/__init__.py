"""Structured pruning: remove attention heads and FFN neurons (cut), then train what remains (recover).

A new importance criterion is one file in `criteria` and one line in its table.
"""
