"""Cutting heads and FFN neurons: score them (pure), cut them, recover.

Adding a way to score is one function in `score.py`; adding something to cut is one group in `surgery.py`.
"""
