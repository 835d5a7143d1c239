"""Quality, speed and size of any model folder or variant, each with what it takes to believe the figure."""

from compress.measure.facts import Facts, Score
from compress.measure.footprint import Footprint, footprint
from compress.measure.latency import Job, Latency, Timing, ratio
from compress.measure.quality import ClassScore, Difference, Quality, assess, predict_role
from compress.measure.session import time_jobs

__all__ = [
    "ClassScore",
    "Difference",
    "Facts",
    "Footprint",
    "Job",
    "Latency",
    "Quality",
    "Score",
    "Timing",
    "assess",
    "footprint",
    "predict_role",
    "ratio",
    "time_jobs",
]
