"""Quality, speed and size of any model folder or variant, with intervals and the conditions of measuring."""

from compress.measure.quality.bootstrap_scorer import BootstrapScorer
from compress.measure.quality.quality_result import ClassScore, Difference, Quality
from compress.measure.quality.score_model import score_model
from compress.measure.resources.footprint import Footprint, footprint
from compress.measure.result_base import ResultModel, Score
from compress.measure.timing.latency import Job, Latency, Noise, Timing, UnderLoad, ratio
from compress.measure.timing.timing_session import time_jobs

__all__ = [
    "BootstrapScorer",
    "ClassScore",
    "Difference",
    "Footprint",
    "Job",
    "Latency",
    "Noise",
    "Quality",
    "ResultModel",
    "Score",
    "Timing",
    "UnderLoad",
    "footprint",
    "ratio",
    "score_model",
    "time_jobs",
]
