"""Quality, speed and size of any model folder or variant, each with what it takes to believe the figure."""

from compress.measure.predict_rows import answer_rows
from compress.measure.quality.bootstrap_scorer import Drawn
from compress.measure.quality.quality_result import ClassScore, Difference, Quality
from compress.measure.quality.score_model import assess
from compress.measure.resources.footprint import Footprint, footprint
from compress.measure.result_base import Facts, Score
from compress.measure.timing.latency import Job, Latency, Noise, Timing, UnderLoad, ratio
from compress.measure.timing.timing_session import time_jobs

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
