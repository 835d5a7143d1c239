"""Quality, speed and size of any model folder or variant, each with what it takes to believe the figure."""

from compress.measure.assess import assess
from compress.measure.drawn import Drawn
from compress.measure.facts import Facts, Score
from compress.measure.footprint import Footprint, footprint
from compress.measure.latency import Job, Latency, Noise, Timing, UnderLoad, ratio
from compress.measure.predict import answer_rows
from compress.measure.quality import ClassScore, Difference, Quality
from compress.measure.session import time_jobs

__all__ = [
    "ClassScore",
    "Difference",
    "Drawn",
    "Facts",
    "Footprint",
    "Job",
    "Latency",
    "Noise",
    "Quality",
    "Score",
    "Timing",
    "UnderLoad",
    "answer_rows",
    "assess",
    "footprint",
    "ratio",
    "time_jobs",
]
