"""Structured pruning: remove attention heads and FFN neurons (cut), train what remains (recover), remove word pieces.

A new importance criterion is one file in `criteria` and one line in its table.
"""
